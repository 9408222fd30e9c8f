"""Reads the text of a compiled program: what it launches, copies and sends, loop by loop."""

import collections
import dataclasses
import math
import re
from collections.abc import Iterator


#: Instructions that launch nothing.
_FREE = frozenset(
    "parameter tuple get-tuple-element constant bitcast after-all partition-id replica-id "
    "opt-barrier add-dependency".split()
)
_COLLECTIVES = (
    "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute|collective-broadcast"
)
_COLLECTIVE = re.compile(rf"({_COLLECTIVES})(-start)?$")
_HOST = re.compile(r"callback|MoveToHost|MoveToDevice|is_host_transfer=true", re.IGNORECASE)
_BYTES = {"pred": 1, "bf16": 2, "f16": 2, "tf32": 4, "token": 0, "opaque": 0}
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (\([^=]*?\)|\S+) ([\w\-]+)\((.*)$")
_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$")


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One instruction.

    **Attributes:**

    - `op`: its name; of a fusion that only copies, `copy`, and of one that sends, what it sends by.
    - `size`: the bytes of its result; of a reduce-scatter, of all that is summed.
    - `text`: its line.
    """

    op: str
    size: int
    text: str


@dataclasses.dataclass(frozen=True)
class Block:
    """What one turn of a loop runs, or the whole program once.

    **Attributes:**

    - `turns`: how often; `None` where the program decides while it runs.
    - `launched`: what it launches itself, the loops inside left out.
    - `inside`: its loops and branches, in order.
    - `condition`: of a loop, what is launched to decide about another turn.
    """

    turns: int | None
    launched: tuple[Instruction, ...]
    inside: tuple["Block", ...]
    condition: int = 0

    def loops(self) -> Iterator["Block"]:
        """All blocks inside, however deep."""
        for block in self.inside:
            yield block
            yield from block.loops()

    def times(self) -> Iterator[tuple[Instruction, int]]:
        """Every instruction with how often it is launched, a turn of a loop of unknown length
        counted once."""
        yield from ((one, 1) for one in self.launched)
        for block in self.inside:
            for one, number in block.times():
                yield one, number * (1 if block.turns is None else block.turns)

    def kernels(self) -> dict[str, int]:
        """How many of each kind a turn launches itself."""
        return dict(collections.Counter(one.op for one in self.launched))


def parse(text: str) -> Block:
    """The program of `compiled.as_text()`."""
    found: dict[str, list[str]] = {}
    current, entry = None, ""
    for line in re.sub(r"/\*.*?\*/", "", text).splitlines():
        if head := _HEAD.match(line):
            current = found.setdefault(head.group(2), [])
            entry = head.group(2) if head.group(1) else entry
        elif line.startswith("}"):
            current = None
        elif current is not None:
            current.append(line)
    return _block(found, entry, 1)


def collectives(block: Block) -> list[tuple[Instruction, int]]:
    """The collectives of a program with how often each is launched."""
    return [(one, number) for one, number in block.times() if _COLLECTIVE.match(one.op)]


def an_update(block: Block, updates: int) -> int:
    """How often devices talk in one of so many updates. What is sent beside all of them counts
    only where it is sent at least as often as there are updates."""
    return sum(number for _, number in collectives(block)) // updates


def host_transfers(block: Block) -> list[str]:
    """The lines that move something to the host or call it."""
    ops = ("infeed", "outfeed", "send", "recv", "custom-call")
    return [
        one.text.strip()
        for one, _ in block.times()
        if one.op in ops[:2] or (one.op in ops and _HOST.search(one.text))
    ]


def copies_in_loops(block: Block, least: int, depth: int) -> list[Instruction]:
    """The copies of `least` bytes and more in loops that lie in at least `depth - 1` others.
    Prefetches (`copy-start`) do not count."""
    found = []
    for inside in block.inside:
        deeper = depth - (inside.turns != 1)
        if deeper <= 0:
            found += [x for x in inside.launched if x.op == "copy" and x.size >= least]
        found += copies_in_loops(inside, least, deeper)
    return found


def size_of(shape: str) -> int:
    """The bytes of a shape, or of all in a tuple."""
    total = 0
    for kind, sizes in re.findall(r"([a-z]+\d*[a-z0-9]*)\[([\d,]*)\]", shape):
        bits = re.search(r"\d+", kind)
        each = _BYTES.get(kind, int(bits.group()) / 8 if bits else 0)
        total += math.ceil(each * math.prod(int(x) for x in sizes.split(",") if x))
    return total


def _block(found: dict[str, list[str]], name: str, turns: int | None, condition: int = 0) -> Block:
    launched: list[Instruction] = []
    inside: list[Block] = []
    sizes: dict[str, int] = {}
    for line in found[name]:
        if (match := _INSTRUCTION.match(line)) is None:
            continue
        _, own, shape, op, rest = match.groups()
        sizes[own] = size_of(shape)
        if op in _FREE or op.endswith("-done"):
            continue
        if op == "while":
            asked = _called(rest, "condition")
            known = re.search(r'known_trip_count":\s*\{"n":\s*"(\d+)"', rest)
            number = int(known.group(1)) if known else _counted_to(found[asked])
            decides = len(_block(found, asked, 1).launched)
            inside.append(_block(found, _called(rest, "body"), number, decides))
        elif op == "conditional":
            branches = re.search(r"branch_computations=\{([^}]*)\}", rest)
            names = (
                [x.strip().lstrip("%") for x in branches.group(1).split(",")]
                if branches
                else [_called(rest, "true_computation"), _called(rest, "false_computation")]
            )
            inside += [_block(found, x, 1) for x in names]
        elif op == "call":
            called = _block(found, _called(rest, "to_apply"), 1)
            launched += called.launched
            inside += called.inside
        else:
            if op in ("fusion", "async-start"):
                called = _called(rest, "calls")
                # A TPU begins to send in one fusion, goes on beside other work, and ends in a
                # third, which counts.
                ends = not own.startswith("async-collective-start")
                if ends and not called.startswith("async_collective_fusion"):
                    op = _what(called, found[called], op)
            size = sizes[own]
            if op.startswith(("reduce-scatter", "all-gather-start")):
                given = re.findall(r"%([\w.\-]+)", rest.partition(")")[0])
                taken = sum(sizes[one] for one in given)
                # What begins to gather has its operands among its results.
                size = taken if op.startswith("reduce-scatter") else size - taken
            launched.append(Instruction(op, size, line))
    return Block(turns, tuple(launched), tuple(inside), condition)


def _called(rest: str, key: str) -> str:
    match = re.search(rf"\b{key}=%?([\w.\-]+)", rest)
    assert match is not None, f"no {key} in {rest[:200]}"
    return match.group(1)


def _counted_to(condition: list[str]) -> int | None:
    """The number of turns of a loop that counts from 0, as compilers for TPUs leave it; they do not
    write it beside the loop."""
    text = "\n".join(condition)
    compared = re.search(r"ROOT .* compare\(%?[\w.\-]+, %?([\w.\-]+)\), direction=LT", text)
    if compared is None:
        return None
    limit = re.search(rf"%?{re.escape(compared.group(1))} = s32\[\]\S* constant\((\d+)\)", text)
    return int(limit.group(1)) if limit else None


def _what(name: str, lines: list[str], otherwise: str) -> str:
    """What a fusion or an asynchronous call is: a collective or a copy, if it is nothing else."""
    if name.startswith("all-reduce-scatter"):  # so a TPU writes it
        return "reduce-scatter"
    ops = {match.group(4) for match in map(_INSTRUCTION.match, lines) if match}
    sent = sorted(op for op in ops if _COLLECTIVE.match(op))
    if sent:
        return sent[0]
    return (
        "copy" if ops <= {"parameter", "copy", "bitcast", "tuple"} and "copy" in ops else otherwise
    )
