"""Writes data/: images and what Pillow makes of them (pixels.safetensors), texts in the form of
comma-separated values and what Python's csv makes of them (csv.json).

pixels.safetensors has, for each FILE, `FILE/rgb` and `FILE/grey` (convert("RGB"), convert("L")),
`FILE/resized` (convert("RGB"), BILINEAR, to 9 x 13) and `FILE/cropped` (ImageOps.fit to 10 x 10), for
some `FILE/larger` (to 40 x 31), each (channels, height, width) u8.

    pip install pillow numpy safetensors && python3 tests/golden/make_data.py
"""
import csv
import io
import json
import pathlib
import random
import struct
import zlib

import numpy as np
from PIL import Image, ImageOps
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).parent / "data"
HEIGHT, WIDTH = 17, 23


def picture(channels, levels=256):
    """A smooth image with some noise, so that all filters and JPEG have something to do."""
    rng = np.random.default_rng(channels)
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    layers = [np.sin(x / (3 + c)) * np.cos(y / (4 - c / 2)) for c in range(channels)]
    image = (np.stack(layers, -1) + 1) / 2 * 0.9 + rng.random((HEIGHT, WIDTH, channels)) * 0.1
    return (image * (levels - 1)).astype(np.uint16 if levels > 256 else np.uint8)


def write_png(path, pixels, color_type, interlaced=False):
    """A PNG of pixels (height, width, channels), u8 or u16, in forms that Pillow cannot write."""
    height, width = pixels.shape[:2]
    raw = pixels.astype(">u2") if pixels.dtype == np.uint16 else pixels
    passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    data = b""
    for y, x, dy, dx in passes if interlaced else [(0, 0, 1, 1)]:
        part = raw[y::dy, x::dx]
        if part.size:
            data += b"".join(b"\0" + row.tobytes() for row in part)

    def chunk(name, body):
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", width, height, 8 * pixels.itemsize, color_type, 0, 0, int(interlaced))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"gAMA", struct.pack(">I", 100000))
                     + chunk(b"IDAT", zlib.compress(data, 9)) + chunk(b"IEND", b""))


def write_images():
    grey, rgb, rgba = Image.fromarray(picture(1)[..., 0]), Image.fromarray(picture(3)), picture(4)
    grey.save(HERE / "grey.png")
    rgb.save(HERE / "rgb.png")
    Image.fromarray(rgba).save(HERE / "rgba.png")
    Image.fromarray(picture(2), "LA").save(HERE / "grey_alpha.png")
    palette = rgb.quantize(16)
    palette.save(HERE / "palette.png", transparency=3)
    grey.point(lambda v: 255 * (v > 120)).convert("1").save(HERE / "bits.png")
    write_png(HERE / "grey16.png", picture(1, 65536), 0)
    write_png(HERE / "rgb16.png", picture(3, 65536), 2)
    write_png(HERE / "interlaced.png", picture(3), 2, interlaced=True)
    grey.save(HERE / "grey.jpg", quality=90)
    rgb.save(HERE / "rgb.jpg", quality=90, subsampling=0)
    rgb.save(HERE / "subsampled.jpeg", quality=80, subsampling=2)
    rgb.save(HERE / "progressive.jpg", quality=80, progressive=True)
    rgb.crop((0, 0, 5, 3)).save(HERE / "small.png")
    rgb.convert("CMYK").save(HERE / "cmyk.jpg")


def pixels_of(path):
    image = Image.open(path)
    if image.mode == "I;16":  # Pillow clips it to 255; it drops the low byte of 16-bit RGB
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    rgb, size = image.convert("RGB"), (13, 9)
    forms = {"rgb": rgb, "grey": image.convert("L"), "resized": rgb.resize(size, Image.BILINEAR),
             "cropped": ImageOps.fit(rgb, (10, 10), Image.BILINEAR)}
    if path.stem in ("rgb", "interlaced"):
        forms["larger"] = rgb.resize((31, 40), Image.BILINEAR)
    for name, form in forms.items():
        values = np.asarray(form)
        values = values[None] if values.ndim == 2 else values.transpose(2, 0, 1)
        yield f"{path.name}/{name}", np.ascontiguousarray(values)


def write_csv():
    rng, cases = random.Random(1), []
    letters = ['a', 'b7', ' ', ',', '"', '""', '\n', '\r\n', '\r', '\t', ';', "'", '\u00e9', '-1.5', '']
    for _ in range(120):
        columns = rng.randint(1, 4)
        rows = [["".join(rng.choices(letters, k=rng.randint(0, 5))) for _ in range(columns)]
                for _ in range(rng.randint(1, 4))]
        text = io.StringIO()
        csv.writer(text, quoting=rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
                   lineterminator=rng.choice(["\n", "\r\n"])).writerows(rows)
        text = text.getvalue()
        if rng.random() < 0.3:
            text = text.rstrip("\r\n") if not text.endswith('\n"') else text
        read = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
        cases.append({"text": text, "rows": read})
    (HERE / "csv.json").write_text(json.dumps(cases, separators=(",", ":")))


HERE.mkdir(exist_ok=True)
write_images()
tensors = {}
for file in sorted(HERE.iterdir()):
    if file.suffix in (".png", ".jpg", ".jpeg") and file.name != "cmyk.jpg":
        tensors.update(pixels_of(file))
save_file(tensors, HERE / "pixels.safetensors")
write_csv()
