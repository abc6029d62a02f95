"""The CPU tier's bookkeeping with literal block ids, block size 4, no scheduler and no tensors."""

import pytest

from kvlab.core.block_pool import BlockPool
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.core.offload import Offload
from kvlab.core.offload_tier import CPUTier
from kvlab.core.prefix_cache import PrefixCachePolicy
from kvlab.core.request import Request, RequestStatus
from kvlab.core.transfers import BlockCopy, TransferReport


class Desk:
    """A manager with a tier, and a runner's answers by hand."""

    def __init__(self, blocks, cpu_blocks, **options):
        self.events = []
        self.manager = KVCacheManager(BlockPool(blocks), 4, **options)
        self.offload = Offload(
            self.manager, CPUTier(cpu_blocks), lambda kind, r, **d: self.events.append((kind, d))
        )

    def admit(self, name, tokens, **extras):
        request = Request(name, tokens, **extras)
        hits, num_hit = self.manager.get_computed_blocks(request)
        assert self.manager.allocate_slots(request, request.num_tokens - num_hit, hits) is not None
        request.num_computed_tokens = request.num_tokens
        request.status = RequestStatus.RUNNING
        self.manager.commit_step()
        return request

    def end_stores(self, ok=True):
        """Every store of the step ends at once. Returns its copies as pairs."""
        loads, stores = self.offload.step_transfers()
        assert loads == ()
        self.offload.commit_step()
        report = TransferReport(stored=stores) if ok else TransferReport(failed_stores=stores)
        self.lost = self.offload.take_report(report).store_failed
        self.offload.check_invariants()
        return [(c.src, c.dst) for c in stores]

    def load(self, request, room=1):
        hits, _ = self.manager.get_computed_blocks(request)
        found = self.offload.lookup(request, hits)
        return self.offload.begin_load(request, found, room)

    def loads(self):
        loads, _ = self.offload.step_transfers()
        self.offload.commit_step()
        return [(c.src, c.dst) for c in loads]

    def tier(self):
        pool = self.offload.tier.pool
        return {b.block_id: b.ref_cnt for b in pool.blocks.values() if b.ref_cnt}

    def free(self):
        return self.manager.pool.free_block_ids


def test_a_request_goes_to_the_tier_and_comes_back_to_other_blocks():
    """Ten positions: two full blocks and half a block. Device blocks 0 1 2, CPU blocks 0 1 2."""
    desk = Desk(5, 8)
    a = desk.admit("A", range(10))
    assert desk.offload.offload(a)
    assert (a.status, a.num_computed_tokens) == (RequestStatus.OFFLOADED, 0)
    assert desk.manager.block_table("A") == []
    assert desk.free() == [2, 3, 4, 1, 0]  # the half block has no identity: nothing is lost by it
    assert desk.end_stores() == [(0, 0), (1, 1), (2, 2)]
    assert desk.tier() == {0: 1, 1: 1, 2: 1}

    desk.admit("B", range(100, 120))  # takes all five device blocks
    assert desk.offload.lookup(a, []).num_tokens == 10
    assert not desk.load(a)  # no room, nothing changed
    assert desk.tier() == {0: 1, 1: 1, 2: 1}
    desk.end_stores()
    b = Request("B", range(100, 120))
    desk.manager.free(b)
    assert desk.load(a)
    assert a.status is RequestStatus.LOADING
    copies = desk.loads()
    assert copies == [(0, 0), (1, 1), (2, 4)]  # CPU block, device block
    evicted = {3: 1, 4: 1, 5: 1}  # stores of three of B's blocks, whose places A takes
    assert desk.tier() == {0: 2, 1: 2, 2: 2, **evicted}  # A's record and its load
    arrivals = desk.offload.take_report(TransferReport(loaded=tuple(BlockCopy(*c) for c in copies)))
    assert arrivals.loaded == (a,)
    assert (a.status, a.num_computed_tokens) == (RequestStatus.RUNNING, 10)
    assert desk.manager.block_table("A") == [0, 1, 4]
    assert desk.tier() == evicted
    desk.manager.check_invariants([a])
    assert [kind for kind, _ in desk.events if kind != "offloaded"] == ["loading", "loaded"]


def test_blocks_that_are_still_on_the_device_are_not_loaded():
    """Both full blocks are found under their identity: only the half one comes back."""
    desk = Desk(5, 8)
    a = desk.admit("A", range(10))
    desk.offload.offload(a)
    desk.end_stores()
    assert desk.load(a)
    assert desk.loads() == [(2, 2)]
    assert desk.manager.block_table("A") == [0, 1, 2]


def test_a_load_waits_for_the_store():
    desk = Desk(5, 8, enable_prefix_caching=False)
    a = desk.admit("A", range(10))
    desk.offload.offload(a)
    desk.offload.commit_step()
    found = desk.offload.lookup(a, [])
    assert (found.num_tokens, found.ready) == (10, False)
    with pytest.raises(AssertionError, match="once its store has ended"):
        desk.load(a)
    stores = tuple(BlockCopy(i, i) for i in range(3))
    desk.offload.take_report(TransferReport(stored=stores))
    assert desk.offload.lookup(a, []).ready


@pytest.mark.parametrize(("cpu_blocks", "taken"), [(2, False), (3, True)])
def test_a_full_tier_refuses_and_nothing_changes(cpu_blocks, taken):
    desk = Desk(5, cpu_blocks)
    a = desk.admit("A", range(10))
    assert desk.offload.offload(a) == taken
    assert desk.offload.stats.refused == (not taken)
    if not taken:
        assert desk.manager.block_table("A") == [0, 1, 2]
        assert desk.offload.step_transfers() == ((), ())
        assert (a.status, a.num_computed_tokens) == (RequestStatus.RUNNING, 10)


def test_evicted_prefix_blocks_are_stored_and_found_again():
    """Three device blocks hold the chain 0-1-2. A newcomer evicts the deepest two."""
    desk = Desk(3, 4)
    desk.manager.free(desk.admit("A", range(12)))
    b = desk.admit("B", range(50, 57))
    assert desk.end_stores() == [(2, 0), (1, 1)]  # deepest first
    again = Request("again", range(13))
    hits, num_hit = desk.manager.get_computed_blocks(again)
    assert ([x.block_id for x in hits], num_hit) == ([0], 4)
    found = desk.offload.lookup(again, hits)
    assert ([x.block_id for x in found.blocks], found.num_tokens) == ([1, 0], 12)
    desk.manager.free(b)
    assert not desk.load(again)  # four blocks for 13 positions, and the pool has three
    assert desk.load(again, room=0)
    assert desk.offload.stats.tokens_found == 8


def test_an_evicted_block_that_the_tier_has_is_not_stored_again():
    desk = Desk(2, 2)
    desk.manager.free(desk.admit("A", range(8)))
    desk.manager.free(desk.admit("B", range(50, 58)))
    assert desk.end_stores() == [(1, 0), (0, 1)]
    a = Request("A again", range(9))
    assert desk.load(a, room=0)  # evicts B's blocks; the tier is full and both are being read
    assert desk.offload.stats.evicted_lost == 2
    copies = desk.loads()
    assert copies == [(1, 0), (0, 1)]
    desk.offload.take_report(TransferReport(loaded=tuple(BlockCopy(*c) for c in copies)))
    desk.manager.free(a)
    desk.admit("C", range(70, 78))  # evicts A's blocks
    assert desk.end_stores() == []
    assert desk.offload.stats.blocks_stored == 2


def test_the_least_recently_used_block_makes_room_in_the_tier():
    """The tier has two blocks. X and Y are there; X is evicted once more, then Z needs a block."""
    desk = Desk(1, 2)
    for first in (10, 20, 10, 30, 40):  # each evicts the one before: X Y X(again) Z
        desk.manager.free(desk.admit("r", range(first, first + 4)))
        desk.end_stores()
    tier = desk.offload.tier.pool
    assert tier.num_free_blocks == 2  # nobody holds them: both are cached and free
    probe = Request("probe", [*range(10, 14), 1])
    assert [b.block_id for b in desk.offload.lookup(probe, []).blocks] == [0]  # X stayed
    assert desk.offload.lookup(Request("y", [*range(20, 24), 1]), []) is None  # Y made room
    assert [b.block_id for b in desk.offload.lookup(Request("z", [*range(30, 34), 1]), []).blocks]


def test_a_failed_store_drops_the_record():
    desk = Desk(5, 8)
    a = desk.admit("A", range(10))
    desk.offload.offload(a)
    desk.end_stores(ok=False)
    assert desk.lost == (a,)
    assert a.status is RequestStatus.PREEMPTED
    assert desk.offload.record_of(a) is None
    assert desk.tier() == {}
    assert desk.offload.stats.failed_stores == 3


def test_a_failed_load_gives_the_blocks_back_and_is_not_tried_again():
    desk = Desk(5, 8)
    a = desk.admit("A", range(10))
    desk.offload.offload(a)
    desk.end_stores()
    desk.manager.reset_prefix_cache()
    desk.load(a)
    loads = desk.loads()
    assert loads == [(0, 2), (1, 3), (2, 4)]
    desk.offload.take_report(TransferReport(loaded=(BlockCopy(0, 2),)))
    assert a.status is RequestStatus.LOADING  # two copies are under way
    arrivals = desk.offload.take_report(
        TransferReport(loaded=(BlockCopy(2, 4),), failed_loads=(BlockCopy(1, 3),))
    )
    assert arrivals.load_failed == (a,)
    assert (a.status, a.num_computed_tokens) == (RequestStatus.PREEMPTED, 0)
    assert len(desk.free()) == 5
    assert desk.tier() == {}
    found = desk.offload.lookup(a, [])
    assert found.num_tokens == 4  # block 1 cannot be read; block 0 is still a prefix
    desk.offload.check_invariants()


def test_two_requests_with_one_prefix_store_it_once():
    desk = Desk(8, 8)
    a, b = desk.admit("A", range(10)), desk.admit("B", range(10))
    assert desk.manager.block_table("B") == [0, 1, 3]
    desk.offload.offload(a)
    assert desk.end_stores() == [(0, 0), (1, 1), (2, 2)]
    desk.offload.offload(b)
    assert desk.end_stores() == [(3, 3)]
    assert desk.tier() == {0: 2, 1: 2, 2: 1, 3: 1}


def test_a_copied_tail_is_stored_from_where_its_content_is():
    """B was forked from A; in this step B's tail becomes block 2, to be copied from block 1."""
    desk = Desk(5, 8)
    a = desk.admit("A", range(6))
    b = Request("B", range(6))
    desk.manager.fork(a, b)
    b.append_output(7)
    desk.manager.allocate_slots(b, 1)
    assert desk.manager.step_copies() == (BlockCopy(1, 2),)
    assert desk.offload.offload(b)
    assert [(c.src, c.dst) for c in desk.offload.step_transfers()[1]] == [(0, 0), (1, 1)]
    assert desk.manager.step_copies() == ()


def test_identities_of_the_step_under_way_are_not_stored():
    """Four positions are computed, four more scheduled: block 1 is registered and not written."""
    desk = Desk(5, 8)
    a = Request("A", range(8))
    desk.manager.allocate_slots(a, 4)
    a.num_computed_tokens = 4
    desk.manager.commit_step()
    desk.manager.allocate_slots(a, 4)
    assert desk.offload.offload(a)
    assert desk.end_stores() == [(0, 0)]
    assert desk.offload.lookup(Request("x", range(9)), []).num_tokens == 4


def test_a_step_that_fails_takes_its_copies_back():
    desk = Desk(5, 8)
    a, b = desk.admit("A", range(10)), desk.admit("B", range(50, 54))
    desk.offload.offload(a)
    desk.end_stores()
    desk.manager.reset_prefix_cache()
    desk.offload.offload(b)
    desk.load(a)
    arrivals = desk.offload.take_back_step()
    assert (arrivals.load_failed, arrivals.store_failed) == ((a,), (b,))
    assert (a.status, b.status) == (RequestStatus.OFFLOADED, RequestStatus.PREEMPTED)
    assert len(desk.free()) == 5
    assert desk.tier() == {0: 1, 1: 1, 2: 1}  # A's record is still good
    assert not desk.offload.under_way
    desk.offload.check_invariants()


def test_immediate_release_keeps_nothing_in_the_tier_either():
    desk = Desk(5, 8, policy=PrefixCachePolicy(retain_freed=False))
    a = desk.admit("A", range(10))
    desk.offload.offload(a)
    desk.end_stores()
    desk.load(a)
    copies = tuple(BlockCopy(*c) for c in desk.loads())
    desk.offload.take_report(TransferReport(loaded=copies))
    assert all(b.block_hash is None for b in desk.offload.tier.pool.blocks.values())
    assert desk.offload.lookup(Request("x", range(11)), []) is None


@pytest.mark.parametrize("bad", [0, -1, 2.0, "8", True])
def test_a_tier_needs_a_number_of_blocks(bad):
    with pytest.raises(ValueError, match="give an integer of at least 1"):
        CPUTier(bad)
