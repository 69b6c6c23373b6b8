"""The report of tests/gpu/run: a JSON file, written after each part, and tables for the terminal."""
import json
import pathlib
import shutil

MOST_OUTPUT = 12_000  # characters of the tables


def read_earlier(options):
    """The report of the run before, for --only unfinished; else an empty one."""
    file = pathlib.Path(options.json)
    if options.only != "unfinished" or not file.exists():
        return {"rows": [], "notes": [], "attention": [], "products": [], "speeds": {}}
    return json.loads(file.read_text())


class Report:
    def __init__(self, session, gpu, earlier):
        self.session, self.gpu, self.earlier = session, gpu, earlier
        self.file, self.rows = pathlib.Path(session.options.json), []
        session.notes += earlier["notes"]
        if session.options.only == "unfinished" and not self.file.exists():
            session.note(f"all parts were selected, because there is no report of an earlier run in {self.file}")
        session.attention, session.products = earlier["attention"], earlier["products"]
        for name, result in earlier["speeds"].items():
            session.speeds[tuple(name.split(" ", 1))] = result

    def all_rows(self):
        """The rows of the earlier report that this run has not replaced, then those of this run."""
        names = {row["part"] for row in self.rows}
        return [row for row in self.earlier["rows"] if row["part"] not in names] + self.rows

    def add(self, row):
        """Adds the row of a part and writes the report: a run that is killed later leaves it behind."""
        self.rows.append(row)
        self.write()

    def write(self):
        s = self.session
        report = {"gpu": self.gpu, "rows": self.all_rows(), "notes": s.notes, "attention": s.attention,
                  "products": s.products,
                  "speeds": {" ".join(key): value for key, value in s.speeds.items()}}
        self.file.parent.mkdir(parents=True, exist_ok=True)
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps(report) + "\n")
        part.replace(self.file)
        if s.options.copy:
            folder = pathlib.Path(s.options.copy)
            folder.mkdir(parents=True, exist_ok=True)
            for file in filter(pathlib.Path.exists, (self.file, s.log)):
                shutil.copy(file, folder / file.name)

    def print(self):
        """Prints the tables, shortened as needed."""
        for kinds, width in (15, 300), (8, 300), (4, 200), (0, 120), (0, 60), (0, 0):
            text = f"\nreport: {self.file}\n" + self.tables(kinds, width)
            if len(text) < MOST_OUTPUT:
                break
        print(text[-MOST_OUTPUT:], flush=True)

    def tables(self, kinds, width):
        """With the times of so many kinds of kernels, and notes of at most width characters; 0: without notes."""
        lines = [self.gpu, "| part | result | passed | failed | skipped | seconds | limit |",
                 "|---|---|---|---|---|---|---|"]
        for row in self.all_rows():
            lines.append("| {part} | {result} | {passed} | {failed} | {skipped} | {seconds} | {limit} |".format(**row))
        notes = [note[:width] for note in self.session.notes if width]
        return "\n".join([*lines, *notes, "", attention_table(self.session.attention),
                          product_table(self.session.products), speed_table(self.session.speeds, kinds)])


def speed_table(speeds, kinds):
    """With the times of so many kinds of kernels."""
    if not speeds:
        return ""
    rate = max(r["product_flops_per_s"] for r in speeds.values())
    lines = ["| model | | tokens/s | MFU | ms per step | peak GB | host us per task | GPU busy |",
             "|---|---|---|---|---|---|---|---|"]
    for (model, side), r in speeds.items():
        host = f"{r['host_us_per_task']:.2f}" if "host_us_per_task" in r else ""
        busy = f"{r['busy']:.2f}" if "busy" in r else ""
        lines.append(f"| {model} | {side} | {r['tokens_per_s']:.0f} | {r['flops_per_s'] / rate:.3f} | "
                     f"{r['ms_per_step']:.1f} | {r['peak_bytes'] / 1e9:.2f} | {host} | {busy} |")
    for (model, side), r in speeds.items():
        if r["kinds"] and kinds:
            times = sorted(((v["ms"] if isinstance(v, dict) else v, k) for k, v in r["kinds"].items()), reverse=True)
            longest = ", ".join(f"{k[:60]} {ms:.2f}" for ms, k in times[:kinds])
            lines.append(f"\n{model} {side}, ms per step: {longest}")
    return "\n".join([*lines, f"\nbf16 products: {rate / 1e12:.2f} TFLOP/s"])


def attention_table(rows):
    if not rows:
        return ""
    lines = ["| attention | backend | forward ms | TFLOP/s | backward ms | TFLOP/s |", "|---|---|---|---|---|---|"]
    for r in rows:
        if "error" in r:
            lines.append(f"| {r['shape']} | {r['backend']} | {r['error']} | | | |")
            continue
        lines.append(f"| {r['shape']} | {r['backend']} | {r['forward_ms']:.3f} | {r['forward_flops'] / 1e12:.1f} | "
                     f"{r['backward_ms']:.3f} | {r['backward_flops'] / 1e12:.1f} |")
    return "\n".join(lines) + "\n"


def product_table(rows):
    if not rows:
        return ""
    lines = ["| products, TFLOP/s | forward | gradient of the input | of the weight |", "|---|---|---|---|"]
    for r in rows:
        rates = [f"{r[kind] / 1e12:.1f}" if kind in r else ""
                 for kind in ("forward", "input_gradient", "weight_gradient")]
        lines.append(f"| {r['model']} {r['product']} | {' | '.join(rates)} |")
    return "\n".join(lines) + "\n"
