"""Clocks of their own for the blocks of a device, which rest while nothing in them would change.

In most cycles most blocks are idle, but a compiled model evaluates all of them at each edge of a
common clock. Here each block gets a clock, and says by `moves__` whether a register of it would
take another value at the next edge. An edge at which none would can be left out: it changes
nothing. What depends on resting blocks alone is not evaluated then.

This reads the Verilog that Yosys writes for Amaranth's designs, not any Verilog.
"""

import functools
import itertools
import re
from collections import defaultdict
from collections.abc import Iterator

LEAST_STATEMENTS = 5
"""Of registers in a block that has a clock of its own; smaller ones share that of the block that
they are in."""

OPEN_STATEMENTS = 300
"""Of registers in a block, with those in it, of which more than one has a clock, as in the top."""

CLOCKS_LIMIT = 64
"""The runtime has them in one word. Of a device with more blocks the smallest have none."""

_NAME = r"(?:\\\S+ |[A-Za-z_][\w$]*)"
_CHUNK = re.compile(r"(?<=^endmodule\n)", re.M)
_HEAD = re.compile(rf"^module ({_NAME}) ?\(", re.M)
_ARRAY = re.compile(rf"^  reg (?:\[[^\]]*\] )?({_NAME}) \[\d+:\d+\];$", re.M)
_ASSIGN = re.compile(r"^  assign (.*?) = (.*?);$", re.M | re.S)
_ALWAYS = re.compile(
    r"^  always @(\*|\(posedge clk\))(?: begin)?\n(.*?)(?=^  \S|^endmodule)", re.M | re.S
)
_INSTANCE = re.compile(rf"^  ({_NAME}) ?({_NAME}) ?\(\n(?:    \..*\n)*  \);\n", re.M)
_SET = re.compile(rf"^ *(({_NAME}) ?(\[.*\])?) ?<?= (.*);$")
_CONSTANT = re.compile(r"\d+'[hbd][0-9a-fxz]+|\(\*.*?\*\)|/\*.*?\*/|//.*")
_UNDEFINED = re.compile(r"'[hb]x")

# Without it Verilator would put all conditions into one expression, which any change evaluates.
_KEPT = "/*verilator public_flat_rd*/"


_WORDS = {"if", "else", "begin", "end", "case", "casez", "endcase", "default"}


def _names(text: str) -> set[str]:
    return {name.strip() for name in re.findall(_NAME, _CONSTANT.sub("", text))} - _WORDS


def _base(target: str) -> str:
    """The register, or the array, of which a target of an assignment may be a part."""
    match = re.match(_NAME, target)
    assert match is not None
    return match[0].strip()


def _assignments(body: str) -> Iterator[tuple[list[str], str, str]]:
    """The conditions, target and value of each assignment in the body of a clocked block."""
    open_blocks: list[str] = []
    once: list[str] = []
    for line in map(str.strip, body.split("\n")):
        if once and line.startswith("if "):
            raise ValueError(f"condition {once[0]!r} has {line!r}; allowed: an assignment")
        if match := re.fullmatch(r"if \((.*)\)( begin)?", line):
            if match[2]:
                open_blocks.append(match[1])
            else:
                once = [match[1]]
        elif line == "end":
            del open_blocks[-1:]
        elif match := re.fullmatch(r"(.*?) <= (.*);", line):
            yield [*open_blocks, *once], match[1], match[2]
            once = []
        elif line and not line.startswith("//"):
            raise ValueError(
                f"clocked block has {line!r}; allowed: assignments and if without else"
            )


class _Module:
    """One module of the Verilog: its registers, and what decides about their next values."""

    def __init__(self, text: str):
        head = _HEAD.search(text)
        assert head is not None
        self.text = text
        self.name = head[1].strip()
        self.arrays = {name.strip() for name in _ARRAY.findall(text)}
        self.instances = [(match[1].strip(), match[0]) for match in _INSTANCE.finditer(text)]
        self.clocked: list[tuple[list[str], str, str]] = []
        """Assignments at the clock: conditions, target, value."""
        self._drivers: dict[str, set[str]] = defaultdict(set)
        for target, value in _ASSIGN.findall(text):
            for name in _names(re.sub(r"\[[^\]]*\]", "", target)):
                self._drivers[name] |= _names(value)
        registers: dict[str, set[str]] = defaultdict(set)
        for event, body in _ALWAYS.findall(text):
            targets, read = set(), set()
            for line in body.split("\n"):
                if match := _SET.match(line):
                    targets.add(match[2].strip())
                    read |= _names((match[3] or "") + " " + match[4])
                elif not line.endswith(" begin end"):  # Yosys' way to have it run at the start
                    read |= _names(line)
            for name in targets:
                (self._drivers if event == "*" else registers)[name] |= read - targets
            if event != "*":
                self.clocked += _assignments(body)
        self.sources = {
            name: frozenset().union(*map(self._origins, read)) for name, read in registers.items()
        }
        """Of each register the registers, inputs and outputs of children that it is computed of."""
        self.free = self._free_running()

    def _origins(self, name: str) -> frozenset[str]:
        found, seen, left = set(), set(), [name]
        while left:
            name = left.pop()
            if name in seen:
                continue
            seen.add(name)
            if name in self._drivers:
                left += self._drivers[name]
            else:
                found.add(name)
        return frozenset(found)

    def _free_running(self) -> set[str]:
        """Registers that nothing but their like and the reset has an influence on: counters."""
        free = set(self.sources) - self.arrays
        while bound := {name for name in free if self.sources[name] - free - {"rst"}}:
            free -= bound
        return free

    def moves(self) -> list[str]:
        """Expressions: whether a register would change, by the ports that have a say in it."""
        groups: dict[frozenset[str], list[str]] = defaultdict(list)
        following: dict[str, str] = {}
        for conditions, target, value in self.clocked:
            condition = " && ".join(f"({each})" for each in conditions)
            if _base(target) in self.arrays:
                written = f"{condition} && " if condition else ""
                groups[self._ports(target)].append(f"({written}({target} !== {value}))")
            elif _base(target) not in self.free and not _UNDEFINED.search(value):
                # What is undefined is used by nobody, so it need not become so.
                before = following.get(target, target)
                following[target] = f"(({condition}) ? {value} : {before})" if condition else value
        for target, value in following.items():
            groups[self._ports(target)].append(f"({target} !== {value})")
        return ["\n    | ".join(terms) for terms in groups.values()]

    def _ports(self, target: str) -> frozenset[str]:
        return self.sources[_base(target)] - set(self.sources)


class _Splitter:
    """The modules of a device, and which of them have a clock of their own."""

    def __init__(self, verilog: str, top: str):
        self._top = top
        self._modules: dict[str, _Module] = {}
        self.texts: list[_Module | str] = []
        for text in _CHUNK.split(verilog):
            if _HEAD.search(text):
                module = _Module(text)
                self._modules[module.name] = module
                self.texts.append(module)
            else:
                self.texts.append(text)
        if top not in self._modules:
            raise ValueError(f"no module is named {top!r}; allowed: {sorted(self._modules)}")
        # Cached for this object, which is short-lived.
        self._total = functools.cache(self._count_all)
        self._runs_free = functools.cache(self._has_free_running)
        self._open = self._find_open(top)
        for self._least in itertools.count(LEAST_STATEMENTS):
            self._statements = functools.cache(self._count_statements)
            if self.clocks <= CLOCKS_LIMIT:
                break

    def _children(self, name: str) -> list[tuple[str, str]]:
        """Module and text of each instance."""
        instances = self._modules[name].instances
        return [(child, text) for child, text in instances if child in self._modules]

    def _find_open(self, name: str) -> set[str]:
        """Modules of which more than one block has a clock: those that join large parts."""
        found = {name}
        for child, _ in self._children(name):
            if self._total(child) >= OPEN_STATEMENTS:
                found |= self._find_open(child)
        return found

    def _separate(self, parent: str, child: str) -> bool:
        is_large = child in self._open or self._statements(child) >= self._least
        return parent in self._open and is_large

    def _count_all(self, name: str) -> int:
        """Assignments to registers of the module and of all in it."""
        children = self._children(name)
        return len(self._modules[name].clocked) + sum(self._total(child) for child, _ in children)

    def _count_statements(self, name: str) -> int:
        """Assignments to registers that share the clock of the module."""
        return len(self._modules[name].clocked) + sum(
            self._statements(child)
            for child, _ in self._children(name)
            if not self._separate(name, child)
        )

    @property
    def clocks(self) -> int:
        """Clocks of all blocks."""
        return self._clocks(self._top)

    def _clocks(self, name: str) -> int:
        """Those of a module: its own, and if it is open those of children that have some."""
        children = self._children(name) if name in self._open else []
        return 1 + sum(self._clocks(child) for child, _ in children if self._separate(name, child))

    def _has_free_running(self, name: str) -> bool:
        return bool(self._modules[name].free) or any(
            self._runs_free(child) for child, _ in self._children(name)
        )

    def split(self, module: _Module) -> str:
        """The text of a module with its clocks, and what says of each whether it moves anything."""
        text = module.text
        declared: list[str] = []
        assigned: list[str] = []
        own: list[str] = []
        parts = ["moves__"]
        """Of `moves_all`, from the lowest bit on."""
        for number, terms in enumerate(module.moves()):
            own.append(f"moves__own{number}")
            declared.append(f"wire {own[-1]} {_KEPT}")
            assigned.append(f"assign {own[-1]} = {terms}")
        at = 1
        for number, (child, instance) in enumerate(self._children(module.name)):
            moves = f"moves__child{number}"
            count = self._clocks(child)
            is_separate = self._separate(module.name, child)
            if is_separate:
                parts.append(moves)
            else:
                own.append(moves)
            connections = []
            if child in self._open or self._runs_free(child):
                connections.append(".clk_free(clk_free)")
            if child in self._open:
                declared.append(f"wire [{count - 1}:0] {moves}")
                connections.append(f".clocks(clocks[{at + count - 1}:{at}]), .moves_all({moves})")
            elif is_separate:
                declared += [f"wire clk__{number}", f"wire {moves} {_KEPT}"]
                assigned.append(f"assign clk__{number} = clocks[{at}]")
                connections.append(f".clk(clk__{number}), .moves__({moves})")
            else:
                declared.append(f"wire {moves}")
                connections.append(f".clk(clk), .moves__({moves})")
            at += count if is_separate else 0
            lines = "".join(f"    {connection},\n" for connection in connections)
            head, _, rest = instance.replace("    .clk(clk),\n", "").partition("\n")
            text = text.replace(instance, f"{head}\n{lines}{rest}")
        for name in module.free:
            text = re.sub(
                rf"(?<=always @\(posedge )clk(?=\)\n    {re.escape(name)} ?<= )", "clk_free", text
            )
        text = re.sub(r"(?<=always @\()posedge (?=clk|clk_free\))", "edge ", text)
        text = text.replace("  input clk;\n  wire clk;\n", "")
        assigned.append(f"assign moves__ = {' | '.join(own) or 0}")
        is_open = module.name in self._open
        ports = ["clk_free"] if is_open or self._runs_free(module.name) else []
        declared += [f"input {port}" for port in ports]
        if is_open:
            ports += ["clocks", "moves_all"]
            declared += [f"input [{at - 1}:0] clocks", f"output [{at - 1}:0] moves_all"]
            declared += ["wire clk", f"wire moves__ {_KEPT}"]
            assigned += [
                "assign clk = clocks[0]",
                f"assign moves_all = {{{', '.join(reversed(parts))}}}",
            ]
        else:
            ports += ["clk", "moves__"]
            declared += ["input clk", "output moves__"]
        start = _HEAD.search(text)
        assert start is not None
        names, _, body = text[start.end() :].partition(";\n")
        names = re.sub(r"(?:(?<= )|^)clk\s*, |, clk(?=\s*[,)])", "", names)
        body, _, end = body.rpartition("endmodule\n")
        return "".join(
            [
                text[: start.end()],
                "".join(f"{port}, " for port in ports),
                f"{names};\n",
                *(f"  {each};\n" for each in declared),
                body,
                *(f"  {each};\n" for each in assigned),
                f"endmodule\n{end}",
            ]
        )


def split_clocks(verilog: str, top: str) -> tuple[str, int]:
    """Return Verilog whose blocks have clocks of their own, and how many those are.

    The module `top` has `clk_free` instead of `clk`, at which free-running counters go on, and two
    words with a bit for each clock: `clocks`, and `moves_all`, which says whether the next edge of
    that clock would change anything; it may always come. Both edges of all these clocks count.

    Parameters
    ----------
    verilog: what `hw.rtlil.to_verilog` returned.
    top: each of its children of `LEAST_STATEMENTS` has a clock, what is smaller that of `top`. So
        have the children of a child of `OPEN_STATEMENTS`.
    """
    splitter = _Splitter(verilog, top)
    texts = [each if isinstance(each, str) else splitter.split(each) for each in splitter.texts]
    return "".join(texts), splitter.clocks
