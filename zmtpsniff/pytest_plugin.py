"""A plug-in of pytest: the fixture ``zmtp_capture`` captures the loopback while a test runs.

    def test_prices_are_published(zmtp_capture):
        run_the_publisher()
        assert [b"EUR", b"1.09"] in [message.frames for message in zmtp_capture.messages]
        assert not zmtp_capture.problems

pytest imports this for every project that has zmtpsniff installed, so it imports nothing else until a test asks for it.
"""

import io
from collections.abc import Generator
from functools import cached_property
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from dissectors.events import AnyEvent, Capture, Connection, Message, Problem
    from zmtpsniff.analysis.findings.finding import Finding
    from zmtpsniff.analysis.ways.way_records import Way
    from zmtpsniff.dissection import Dissection

_MOST_LINES = 60  # of a capture in the report of a failed test
_JOIN_SECONDS = 10.0


class ZmtpCapture:
    """The packets at an interface since the test began; the first question ends the capture."""

    def __init__(self, path: Path, interface: str = "lo", capture_filter: str = "tcp") -> None:
        """Begin to capture into the file ``path``; raises zmtpsniff.Error if that cannot be done."""
        from zmtpsniff import __version__
        from zmtpsniff.capture.engines.choice import make_engine
        from zmtpsniff.capture.engines.engine import LiveOptions
        from zmtpsniff.capture.live import LiveSource
        from zmtpsniff.capture.pcapng_writer import Provenance
        from zmtpsniff.capture.saver import Saver

        self.path = path
        options = LiveOptions([interface], capture_filter)
        self._source = LiveSource(make_engine("auto", options))
        origin = Provenance(f"zmtpsniff {__version__}", interface, capture_filter, options.snaplen)
        self._source.saver = Saver(str(path), origin)
        self._thread = Thread(target=self._save, name="zmtp_capture", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """End the capture; what has passed until now is in the file. A second call does nothing."""
        self._source.stop()
        self._thread.join(_JOIN_SECONDS)

    @cached_property
    def events(self) -> "list[AnyEvent]":
        """All events, in order, as zmtpsniff.open() gives them. Raises zmtpsniff.Error."""
        with self._opened() as capture:
            return list(capture)

    @property
    def messages(self) -> "list[Message]":
        """The messages, each with its frames as octets."""
        from dissectors.events import Message

        return [event for event in self.events if isinstance(event, Message)]

    @property
    def connections(self) -> "list[Connection]":
        """The connections, each with its mechanism, version and both socket types."""
        from dissectors.events import Connection

        return [event for event in self.events if isinstance(event, Connection)]

    @property
    def problems(self) -> "list[Problem]":
        """The problems: errors, warnings and notes."""
        from dissectors.events import Problem

        return [event for event in self.events if isinstance(event, Problem)]

    @cached_property
    def findings(self) -> "list[Finding]":
        """The findings of ``zmtpsniff diagnose``, with advice. Raises zmtpsniff.Error."""
        with self._opened() as capture:
            return capture.findings()

    @property
    def totals(self) -> "Capture":
        """The numbers of packets, connections and messages."""
        from dissectors.events import Capture

        last = self.events[-1]
        assert isinstance(last, Capture)
        return last

    @cached_property
    def ways(self) -> "list[Way]":
        """The way of each request, job and publication, as ``zmtpsniff trace`` tells them. Raises zmtpsniff.Error."""
        with self._opened() as capture:
            return capture.ways()

    def summary(self) -> str:
        """A line for each record, as ``zmtpsniff read -T summary`` writes it; of many only the first."""
        from zmtpsniff.render import make_renderer

        text = io.StringIO()
        renderer = make_renderer("summary", text, color="never")
        renderer.write(self.events)
        renderer.finish()
        return self._first_lines(text, "read")

    def diagnosis(self) -> str:
        """The findings, as ``zmtpsniff diagnose`` writes them; empty if there are none."""
        from zmtpsniff.render.findings_text import draw

        text = io.StringIO()
        if self.findings:
            draw(self.findings, self.totals, text, color="never")
        return self._first_lines(text, "diagnose")

    def lost(self) -> str:
        """The requests without a reply and the jobs that were not done, as ``zmtpsniff trace --lost`` writes them."""
        from zmtpsniff.render.way_ladder import LadderRenderer

        text = io.StringIO()
        LadderRenderer(text, color="never").write([w for w in self.ways if w.ended is not None or w.answered is False])
        return self._first_lines(text, "trace --lost")

    def _opened(self) -> "Dissection":
        """All events that have passed, once the capture has ended. Raises zmtpsniff.Error."""
        import zmtpsniff

        self.finish()
        return zmtpsniff.open(self.path)

    def _first_lines(self, text: io.StringIO, command: str) -> str:
        lines = text.getvalue().splitlines()
        if len(lines) > _MOST_LINES:
            lines[_MOST_LINES:] = [f"… and {len(lines) - _MOST_LINES} more: zmtpsniff {command} {self.path}"]
        return "\n".join(lines)

    def _save(self) -> None:
        for _ in self._source.batches():
            pass  # saving is done by the thread that reads the interface


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for machines on which nobody may capture."""
    parser.getgroup("zmtpsniff").addoption(
        "--zmtp-skip-unprivileged",
        action="store_true",
        help="skip tests with zmtp_capture if capturing needs privileges that are missing; else they fail",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        "zmtp_capture(interface='lo', capture_filter='tcp'): where the fixture zmtp_capture captures, and what",
    )


@pytest.fixture
def zmtp_capture(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[ZmtpCapture, None, None]:
    """The messages of ZeroMQ programs on the loopback during the test (ZmtpCapture).

    The marker ``zmtp_capture`` names another interface or a capture filter. The packets are in ``zmtp.pcapng`` in the
    test's ``tmp_path``, which the report of a failed test names. That has the findings and the lost requests, too.
    """
    import zmtpsniff

    marker = request.node.get_closest_marker("zmtp_capture")
    options = marker.kwargs if marker else {}
    if marker and (marker.args or not options.keys() <= {"interface", "capture_filter"}):
        pytest.fail("zmtp_capture: the marker takes interface= and capture_filter=, nothing else", pytrace=False)
    fault = ""
    may_skip = False
    try:
        capture = ZmtpCapture(tmp_path / "zmtp.pcapng", **options)
    except zmtpsniff.Error as error:
        fault = f"zmtp_capture: {error}"
        may_skip = isinstance(error, zmtpsniff.PrivilegeError) and request.config.getoption("--zmtp-skip-unprivileged")
    if may_skip:
        pytest.skip(fault)
    if fault:  # out of the handler, so that pytest shows nothing but this line
        pytest.fail(fault, pytrace=False)
    yield capture
    capture.finish()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> "Generator[None, pytest.TestReport, pytest.TestReport]":
    """Attach the capture to the report of a test that failed."""
    report = yield
    capture = getattr(item, "funcargs", {}).get("zmtp_capture")
    if report.failed and report.when == "call" and isinstance(capture, ZmtpCapture):
        report.user_properties.append(("zmtp_capture", str(capture.path)))
        report.sections.append((f"ZeroMQ messages, captured in {capture.path}", capture.summary()))
        for title, text in (("What is wrong", capture.diagnosis()), ("Not answered, not done", capture.lost())):
            if text:
                report.sections.append((f"{title} with the ZeroMQ messages", text))
    return report
