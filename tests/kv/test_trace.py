"""Traces: what is appended can be read back, and recording never stands in anybody's way."""

from __future__ import annotations

import json
import logging
import os
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvweave.kv.trace import ChunkLookup, TraceError, TraceWriter, read_trace

LOOKUPS = st.builds(
    ChunkLookup,
    t=st.floats(0, 2e9),
    key=st.text(min_size=1),
    content=st.text("0123456789abcdef", min_size=1),
    tokens=st.integers(1, 10**6),
    bytes=st.integers(1, 10**12),
    cost_ms=st.floats(0, 1e6),
    tier=st.sampled_from([None, "gpu", "cpu", "ssd"]),
)


def lookup(number=0, **changes):
    fields = {
        "t": 1.7e9 + number,
        "key": f"{number:064x}",
        "content": "c" * 64,
        "tokens": 200,
        "bytes": 4096,
        "cost_ms": 12.5,
        "tier": None,
    }
    return ChunkLookup(**fields | changes)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trace.jsonl"


@pytest.fixture
def open_trace(path):
    writers = []

    def open_(at=path, **kwargs):
        writers.append(TraceWriter(at, **kwargs))
        return writers[-1]

    yield open_
    for writer in writers:
        writer.close()


def record(path, lookups, **kwargs):
    writer = TraceWriter(path, **kwargs)
    for each in lookups:
        writer.append(each)
    writer.close()


@given(st.lists(LOOKUPS, max_size=20))
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_what_was_appended_is_read_back(path, lookups):
    path.unlink(missing_ok=True)
    record(path, lookups)
    assert list(read_trace(path)) == lookups


def test_a_line_holds_these_fields_and_nothing_else(path):
    record(path, [lookup(tier="ssd")])
    assert json.loads(path.read_text()) == {
        "t": 1.7e9,
        "key": "0" * 64,
        "content": "c" * 64,
        "tokens": 200,
        "bytes": 4096,
        "cost_ms": 12.5,
        "tier": "ssd",
    }


def test_only_its_owner_may_read_a_trace(path):
    record(path, [lookup()])
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_trace_goes_on_after_a_restart(path):
    record(path, [lookup(0)])
    record(path, [lookup(1)])
    assert list(read_trace(path)) == [lookup(0), lookup(1)]


def test_lookups_are_written_without_being_asked_for(open_trace, path):
    open_trace().append(lookup())
    for _ in range(100):
        if path.stat().st_size:
            break
        threading.Event().wait(0.1)
    assert list(read_trace(path)) == [lookup()]


# -- damage --------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [1, 2, 30, 150])
def test_a_torn_last_line_is_left_out(path, cut):
    record(path, [lookup(i) for i in range(3)])
    os.truncate(path, path.stat().st_size - cut)
    whole = 3 if cut == 1 else 2  # only the newline is missing
    assert list(read_trace(path)) == [lookup(i) for i in range(whole)]


@pytest.mark.parametrize("lines", [1, 3])
@pytest.mark.parametrize("cut", [1, 2, 150, 215])
def test_a_restart_after_a_torn_line_goes_on_behind_the_whole_ones(path, cut, lines):
    record(path, [lookup(i) for i in range(lines)])
    os.truncate(path, path.stat().st_size - cut)
    record(path, [lookup(7)])
    assert list(read_trace(path)) == [*(lookup(i) for i in range(lines - 1)), lookup(7)]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"tokens": 0}, "tokens: .*greater than or equal to 1"),
        ({"bytes": -1}, "bytes: "),
        ({"bytes": 1.5}, "bytes: .*integer"),
        ({"tokens": "12"}, "tokens: .*integer"),
        ({"cost_ms": -0.1}, "cost_ms: "),
        ({"cost_ms": float("nan")}, "cost_ms: .*finite"),
        ({"t": None}, "t: "),
        ({"key": ""}, "key: "),
        ({"tier": "tape"}, "tier: .*'gpu', 'cpu' or 'ssd'"),
    ],
)
def test_a_line_with_a_wrong_field_is_named(path, change, complaint):
    good = {name: getattr(lookup(), name) for name in ChunkLookup.__slots__}
    path.write_text(f"{json.dumps(good)}\n\n{json.dumps(good | change)}\n{json.dumps(good)}\n")
    with pytest.raises(TraceError, match=f"trace.jsonl, line 3: {complaint}"):
        list(read_trace(path))


@pytest.mark.parametrize("missing", ChunkLookup.__slots__)
def test_a_line_without_a_field_is_named(path, missing):
    fields = {name: getattr(lookup(), name) for name in ChunkLookup.__slots__ if name != missing}
    path.write_text(json.dumps(fields))
    with pytest.raises(TraceError, match=f"line 1: {missing}: Field required"):
        list(read_trace(path))


@pytest.mark.parametrize("content", [b"hello\n", b"[1, 2]\n", b"\xff\xfe\n", b'{"t":1\n', b"null"])
def test_a_line_that_is_no_lookup_is_named(path, content):
    record(path, [lookup()])
    with path.open("ab") as file:
        file.write(content)
    with pytest.raises(TraceError, match=r"trace\.jsonl, line 2: "):
        list(read_trace(path))


def test_a_field_of_a_later_version_is_ignored(path):
    fields = {name: getattr(lookup(), name) for name in ChunkLookup.__slots__}
    path.write_text(json.dumps(fields | {"more": 1}) + "\n")
    assert list(read_trace(path)) == [lookup()]


def test_a_trace_that_is_not_there_is_one_message(path):
    with pytest.raises(TraceError, match=r"cannot read the trace .*trace\.jsonl: No such file"):
        list(read_trace(path))


# -- limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("per_flush", [1, 7, 100])
def test_a_trace_is_begun_anew_at_its_limit_and_the_one_before_is_kept(path, open_trace, per_flush):
    writer = open_trace(max_bytes=2000)
    earlier = path.with_name("trace.jsonl.1")
    for i in range(100):
        writer.append(lookup(i))
        if i % per_flush == 0:
            writer.flush()
            assert path.stat().st_size <= 2000
    writer.close()
    kept = [*read_trace(earlier), *read_trace(path)]
    assert earlier.stat().st_size <= 2000
    assert earlier.stat().st_size > 1000
    assert kept == [lookup(i) for i in range(100 - len(kept), 100)]


def test_the_limit_counts_what_an_earlier_run_wrote(path):
    for i in range(30):
        record(path, [lookup(i)], max_bytes=1000)
    assert path.stat().st_size <= 1000
    assert list(read_trace(path))[-1] == lookup(29)


def test_lookups_that_would_need_too_much_memory_are_dropped_and_counted(open_trace, monkeypatch):
    monkeypatch.setattr(TraceWriter, "MAX_PENDING", 5)
    monkeypatch.setattr(TraceWriter, "_INTERVAL_SECONDS", 60)
    writer = open_trace()
    for i in range(8):
        writer.append(lookup(i))
    assert writer.dropped == 3


def test_threads_may_append_at_once(path):
    writer = TraceWriter(path)

    def work(number):
        for i in range(300):
            writer.append(lookup(1000 * number + i))
            if i % 50 == 0:
                writer.flush()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    expected = sorted(f"{1000 * n + i:064x}" for n in range(8) for i in range(300))
    assert sorted(each.key for each in read_trace(path)) == expected


# -- a disk that will not ------------------------------------------------------------------------


def test_a_full_disk_costs_one_log_line_and_ends_the_trace(open_trace, caplog):
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full here")
    writer = open_trace(full)
    with caplog.at_level(logging.WARNING):
        for i in range(5):
            writer.append(lookup(i))
            writer.flush()
        writer.close()
    (message,) = caplog.messages
    assert "cannot write to /dev/full" in message
    assert "No space left" in message
    assert writer.dropped == 5


def test_a_folder_that_vanishes_before_a_new_file_is_begun_ends_the_trace(open_trace, tmp_path):
    folder = tmp_path / "logs"
    writer = open_trace(folder / "trace.jsonl", max_bytes=500)
    writer.append(lookup(0))
    writer.flush()
    (folder / "trace.jsonl").unlink()
    folder.rmdir()
    for i in range(10):
        writer.append(lookup(i))
        writer.flush()
    assert writer.dropped > 0


def test_appending_does_not_wait_for_a_slow_disk(open_trace, monkeypatch):
    writing, go_on = threading.Event(), threading.Event()
    write = os.write

    def slow(fd, content):
        writing.set()
        assert go_on.wait(10)
        return write(fd, content)

    writer = open_trace()
    writer.append(lookup(0))
    monkeypatch.setattr(os, "write", slow)
    flushing = threading.Thread(target=writer.flush)
    flushing.start()
    assert writing.wait(10)
    writer.append(lookup(1))  # would hang here
    go_on.set()
    flushing.join()
    assert writer.dropped == 0


def test_a_lookup_that_cannot_be_written_ends_the_trace_and_raises_nothing(open_trace, path):
    writer = open_trace()
    writer.append(lookup(0))
    writer.append(lookup(1, cost_ms=float("inf")))
    writer.flush()
    writer.append(lookup(2))
    assert writer.dropped == 3


def test_what_is_appended_after_the_end_is_dropped(path):
    writer = TraceWriter(path)
    writer.close()
    writer.append(lookup())
    writer.flush()
    writer.close()
    assert path.read_bytes() == b""


@pytest.mark.parametrize("content", ["hello\n", "hello", '{"a": 1}\n', "{", "\n", '{"t":1}\n'])
def test_a_file_that_is_no_trace_is_left_alone(path, content):
    path.write_text(content)
    if content == "{":  # may be the beginning of a line that was cut short
        TraceWriter(path).close()
        return
    with pytest.raises(TraceError, match="exists and is no trace"):
        TraceWriter(path)
    assert path.read_text() == content


def test_a_file_that_cannot_be_written_is_named_at_the_start(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(TraceError, match=r"cannot write the trace .*\[metrics\] trace_file"):
        TraceWriter(tmp_path / "file" / "trace.jsonl")
