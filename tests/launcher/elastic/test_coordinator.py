"""The launcher's end of the workers' connections, between hosts."""

import threading
import time

import pytest

from hvdtune.core.job import proof
from hvdtune.core.job.worker_messages import Arrival, Messages, Probe, Update
from hvdtune.launcher.elastic.coordinator import Coordinator
from tests.parallel import netns

KEY = bytes(32)


@pytest.mark.skipif(bool(netns.why_not()), reason="needs hosts as network namespaces")
@pytest.mark.parametrize("last", ["probe", "update"])
def test_a_worker_whose_host_is_cut_off_is_found_out(last):
    came = threading.Event()
    with netns.network(2) as network:
        here, there = network.hosts
        with here.entered():
            coordinator = Coordinator(KEY, came.set, probe_s=1.0)
            host, port = coordinator.listen(here.address).rsplit(":", 1)
        with there.entered():
            way = (host, int(port)), KEY, proof.WORKER, proof.FIRST, 30.0
            connection, session = proof.dial(*way)
        worker = Messages(connection, session, dialed=True)

        for is_cut in (False, True):
            came.clear()
            worker.send(Arrival(7, -1, False, 0, True, ()))
            assert came.wait(30)
            if is_cut:
                network.isolate(there)
            if is_cut and last == "update":
                coordinator.tell(7, Update(added=True))
            else:
                coordinator.probe(7)
                coordinator.probe(7)  # which is one with the first
            if not is_cut:
                assert worker.receive() == Probe()
            deadline_s = time.monotonic() + 30
            while is_cut and not coordinator.is_cut_off(7) and time.monotonic() < deadline_s:
                time.sleep(0.01)
            assert coordinator.is_cut_off(7) is is_cut and coordinator.has_lost(7) is is_cut
        worker.close()
        coordinator.close()
