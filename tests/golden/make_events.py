"""Writes events.json: records that TensorBoard itself writes, for tests/lua/runs/report.lua."""
import io
import json
import pathlib

from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

OUT = pathlib.Path(__file__).parent / "events.json"


def record(**fields):
    file = io.BytesIO()
    RecordWriter(file).write(event_pb2.Event(**fields).SerializeToString())
    return file.getvalue().hex()


def value(tag, number):
    return summary_pb2.Summary.Value(tag=tag, simple_value=number)


text = summary_pb2.Summary.Value(
    tag="sample",
    tensor=tensor_pb2.TensorProto(
        dtype=7, tensor_shape=tensor_shape_pb2.TensorShapeProto(dim=[{"size": 1}]),
        string_val=["To be,\nor “not”".encode()]),
    metadata=summary_pb2.SummaryMetadata(plugin_data={"plugin_name": "text"}))
scalars = summary_pb2.Summary(value=[value("loss", 2.3125), value("lr", 6e-4), value("norm", 0.0)])
records = {
    "version": record(wall_time=1.5e9, file_version="brain.Event:2"),
    "start": record(wall_time=1.5e9 + 0.25, step=301, session_log=event_pb2.SessionLog(status=1)),
    "scalars": record(wall_time=1795253348, step=70000, summary=scalars),
    "text": record(wall_time=1795253348, step=300, summary=summary_pb2.Summary(value=[text])),
}
OUT.write_text(json.dumps(records, indent=1) + "\n")
