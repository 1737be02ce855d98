"""Clocks of their own for the blocks of a device, which rest while nothing in them would change.

In most cycles most blocks are idle, but a compiled model evaluates all of them at each edge of a
common clock. Here each block gets a clock, and says by `moves` whether a register of it would take
another value at the next edge. An edge at which none would can be left out: it changes nothing.
What depends on resting blocks alone is not evaluated then.

This reads the Verilog that Yosys writes for Amaranth's designs, not any Verilog.
"""

import functools
import re
from collections import defaultdict
from collections.abc import Iterator

LEAST_STATEMENTS = 5
"""Of registers in a block that has a clock of its own; smaller ones share that of the top."""

CLOCKS_LIMIT = 64
"""The runtime has them in one word."""

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
        self._statements = functools.cache(self._count_statements)
        self._runs_free = functools.cache(self._has_free_running)

    def _children(self, name: str) -> list[tuple[str, str]]:
        """Module and text of each instance."""
        instances = self._modules[name].instances
        return [(child, text) for child, text in instances if child in self._modules]

    def _separate(self, parent: str, child: str) -> bool:
        return parent == self._top and self._statements(child) >= LEAST_STATEMENTS

    def _count_statements(self, name: str) -> int:
        """Assignments to registers that share the clock of the module."""
        return len(self._modules[name].clocked) + sum(
            self._statements(child)
            for child, _ in self._children(name)
            if not self._separate(name, child)
        )

    @property
    def clocks(self) -> int:
        """Clocks of the top: its own, and those of children that have one."""
        children = self._children(self._top)
        return 1 + sum(self._separate(self._top, child) for child, _ in children)

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
        for number, terms in enumerate(module.moves()):
            own.append(f"moves_own{number}")
            declared.append(f"wire {own[-1]} {_KEPT}")
            assigned.append(f"assign {own[-1]} = {terms}")
        clocks = 1
        for number, (child, instance) in enumerate(self._children(module.name)):
            connections = [".clk_free(clk_free)"] if self._runs_free(child) else []
            if self._separate(module.name, child):
                clock, moves = f"clk{clocks}", f"moves{clocks}"
                clocks += 1
            else:
                clock, moves = "clk", f"moves_child{number}"
                own.append(moves)
                declared.append(f"wire {moves}")
            connections += [f".clk({clock})", f".moves({moves})"]
            lines = "".join(f"    {connection},\n" for connection in connections)
            head, _, rest = instance.replace("    .clk(clk),\n", "").partition("\n")
            text = text.replace(instance, f"{head}\n{lines}{rest}")
        for name in module.free:
            text = re.sub(
                rf"(?<=always @\(posedge )clk(?=\)\n    {re.escape(name)} ?<= )", "clk_free", text
            )
        text = re.sub(r"(?<=always @\()posedge (?=clk|clk_free\))", "edge ", text)
        text = text.replace("  input clk;\n  wire clk;\n", "")
        assigned.append(f"assign moves = {' | '.join(own) or 0}")
        ports = ["clk_free"] if self._runs_free(module.name) or module.name == self._top else []
        declared += [f"input {port}" for port in ports]
        if module.name == self._top:
            ports += ["clocks", "moves_all"]
            declared += [f"input [{clocks - 1}:0] clocks", f"output [{clocks - 1}:0] moves_all"]
            suffixes = ["", *map(str, range(1, clocks))]
            for at, each in enumerate(suffixes):
                declared += [f"wire clk{each}", f"wire moves{each} {_KEPT}"]
                assigned.append(f"assign clk{each} = clocks[{at}]")
            every = ", ".join(f"moves{each}" for each in reversed(suffixes))
            assigned.append(f"assign moves_all = {{{every}}}")
        else:
            ports += ["clk", "moves"]
            declared += ["input clk", "output moves"]
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
    top: each of its children of `LEAST_STATEMENTS` has a clock, what is smaller that of `top`.
    """
    splitter = _Splitter(verilog, top)
    if splitter.clocks > CLOCKS_LIMIT:
        raise ValueError(f"there are {splitter.clocks} clocks; allowed: {CLOCKS_LIMIT}")
    texts = [each if isinstance(each, str) else splitter.split(each) for each in splitter.texts]
    return "".join(texts), splitter.clocks
