"""A model of LiteDRAM's core: registers, DFI injector, and an ECP5 PHY that reads right at places.

Written from LiteDRAM 2024.12 (`litedram/phy/ecp5ddrphy.py`, `litedram/dfii.py`), its software
(`liblitedram`), and Lattice's FPGA-TN-02035. Of the PHY it has what reading needs: each byte lane
has a delay and a bitslip, and pauses while it is selected. Of the controller it has the refresh.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from stagecoach.hw.interface.litedram import REGISTERS, SETTINGS
from stagecoach.sim.litedram.ddr3 import BEATS, T_REFI, Address, Ddr3

LANES = SETTINGS["databits"] // 8
READ_CYCLES = 13
"""From a read to its data in the registers: 3 of CL and 10 of the PHY."""

_SEL, _CKE, _RESET_N = 1, 2, 8
_CS, _WE, _CAS, _RAS, _WREN, _RDEN = (1 << bit for bit in range(6))


@dataclass(frozen=True)
class ReadsRight:
    """A lane reads right with this bitslip at delays `first` to `last`.

    detected: its DQSBUFM finds the burst there, BURSTDET.
    """

    bitslip: int
    first: int
    last: int
    detected: bool = True


class LiteDram:
    """The core behind its registers. Times are cycles of `user_clk`, and never go back.

    Parameters
    ----------
    lanes: for each byte lane where it reads right.
    chip: the memory.
    """

    def __init__(self, lanes: Sequence[Sequence[ReadsRight]], chip: Ddr3 | None = None):
        if len(lanes) != LANES:
            raise ValueError(f"{len(lanes)} lanes; allowed: {LANES}")
        self._lanes = lanes
        self.chip = chip if chip is not None else Ddr3()
        self._names = {
            register.address + 4 * word: (name, register.words - 1 - word)
            for name, register in REGISTERS.items()
            for word in range(register.words)
        }
        self.values = dict.fromkeys(REGISTERS, 0)
        self.values["sdram_dfii_control"] = _SEL
        self.delays = [0] * LANES
        self.bitslips = [0] * LANES
        self._in_step = True
        self._given = 0  # when the controller was given the memory last
        self._read: tuple[int, list[int]] | None = None  # when it is there, and what
        self._noise = Random(0)

    # The Wishbone port

    def write(self, now: int, address: int, word: int) -> None:
        """Write a word; one that no register has is ignored, as LiteX does."""
        self._go_on(now)
        name, number = self._names.get(address, ("", 0))
        if not name or REGISTERS[name].read_only:
            return
        kept = self.values[name] & ~(0xFFFFFFFF << 32 * number)
        value = kept | word << 32 * number
        selected = self.values["ddrphy_dly_sel"]
        chosen = [lane for lane in range(LANES) if selected >> lane & 1]
        match name:
            case "ddrphy_dly_sel":
                value &= (1 << LANES) - 1
                if not value and selected:
                    # PAUSE of all DQSBUFM has to end at the same time
                    self._in_step = selected == (1 << LANES) - 1
            case "ddrphy_rdly_dq_rst":
                for lane in chosen:
                    self.delays[lane] = 0
            case "ddrphy_rdly_dq_inc":
                for lane in chosen:
                    self.delays[lane] = (self.delays[lane] + 1) % SETTINGS["delays"]
            case "ddrphy_rdly_dq_bitslip_rst":
                for lane in chosen:
                    self.bitslips[lane] = 0
            case "ddrphy_rdly_dq_bitslip":
                for lane in chosen:
                    self.bitslips[lane] = (self.bitslips[lane] + 1) % SETTINGS["bitslips"]
            case "ddrphy_burstdet_clr":
                self.values["ddrphy_burstdet_seen"] = 0
            case "sdram_dfii_control":
                self.values[name] = value
                self._drive(now)
            case "sdram_dfii_pi0_command_issue" | "sdram_dfii_pi1_command_issue":
                self._issue(now, int(name[len("sdram_dfii_pi")]))
        self.values[name] = value

    def read(self, now: int, address: int) -> int:
        """Read a word; 0 where no register is."""
        self._go_on(now)
        name, number = self._names.get(address, ("", 0))
        return self.values[name] >> 32 * number & 0xFFFFFFFF if name else 0

    # The controller

    def _go_on(self, now: int) -> None:
        """What happens by itself until now."""
        if self._read is not None and now >= self._read[0]:
            words = self._read[1]
            for phase in range(2):
                half = words[4 * phase : 4 * phase + 4]
                value = sum(word << 16 * beat for beat, word in enumerate(half))
                self.values[f"sdram_dfii_pi{phase}_rddata"] = value
            self._read = None
        if self.values["sdram_dfii_control"] & _SEL and self.chip.is_usable():
            # Its timer never stops, and what it sends while it has not the memory is lost
            last = self.chip.refreshed
            since = self._given if last is None else max(self._given, last + 1)
            first, latest = since + -since % T_REFI, now - now % T_REFI
            for due in sorted({first, latest}):
                if first <= due <= now:
                    self.chip.refresh(due)

    def _drive(self, now: int) -> None:
        control = self.values["sdram_dfii_control"]
        if control & _SEL:
            self._given = now
            self.chip.pins(now, reset_n=True, cke=True)
        else:
            self.chip.pins(now, bool(control & _RESET_N), bool(control & _CKE))

    # Commands of software

    def _issue(self, now: int, phase: int) -> None:
        if self.values["sdram_dfii_control"] & _SEL:
            return  # the injector is not connected
        command = self.values[f"sdram_dfii_pi{phase}_command"]
        if not command & _CS:
            return
        ras, cas, we = bool(command & _RAS), bool(command & _CAS), bool(command & _WE)
        address = self.values[f"sdram_dfii_pi{phase}_address"]
        place = self.chip.command(
            now, ras, cas, we, address, self.values[f"sdram_dfii_pi{phase}_baddress"]
        )
        if place is None:
            return
        if we:
            timely = phase == SETTINGS["wrphase"] and command & _WREN
            timely = timely and self.chip.cas_write_latency == SETTINGS["cwl"]
            self.chip.write(place, self._written() if timely else self._anything())
        elif command & _RDEN:
            timely = phase == SETTINGS["rdphase"] and self.chip.cas_latency == SETTINGS["cl"]
            self._read = now + READ_CYCLES, self._captured(place, bool(timely))

    def _written(self) -> list[int]:
        phases = [self.values[f"sdram_dfii_pi{phase}_wrdata"] for phase in range(2)]
        return [value >> 16 * beat & 0xFFFF for value in phases for beat in range(4)]

    def _anything(self) -> list[int]:
        return [self._noise.getrandbits(16) for _ in range(BEATS)]

    # Reading

    def _captured(self, place: Address, timely: bool) -> list[int]:
        """What the PHY makes of a burst of the chip."""
        words = self.chip.read(place)
        if not (timely and self.chip.is_usable()):
            return self._anything()
        octets = []
        for lane in range(LANES):
            seen = self._lane(lane, [word >> 8 * lane & 0xFF for word in words])
            octets.append(seen)
        return [
            sum(octets[lane][beat] << 8 * lane for lane in range(LANES)) for beat in range(BEATS)
        ]

    def _lane(self, lane: int, sent: list[int]) -> list[int]:
        delay, bitslip = self.delays[lane], self.bitslips[lane]
        paused = self.values["ddrphy_dly_sel"] >> lane & 1
        places = [one for one in self._lanes[lane] if one.first <= delay <= one.last]
        if paused or not self._in_step or not places:
            # Sampled where it changes: each bit is that of this beat or of another one
            return [
                octet ^ (self._noise.getrandbits(8) | 1 << beat) & 0xFF
                for beat, octet in enumerate(sent)
            ]
        if any(one.detected for one in places):
            self.values["ddrphy_burstdet_seen"] |= 1 << lane
        if any(one.bitslip == bitslip for one in places):
            return sent
        shift = bitslip - places[0].bitslip
        return [
            sent[beat + shift] if 0 <= beat + shift < BEATS else self._noise.getrandbits(8)
            for beat in range(BEATS)
        ]
