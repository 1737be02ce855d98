"""Cells as nextpnr writes them; nets are numbers."""

CLOCK, RESET = 1, 2


def flip_flop(bel, q, **changed):
    nets = {"CLK": CLOCK, "LSR": RESET, "M": 90, "Q": q} | changed
    return cell("TRELLIS_FF", bel, {"Q"}, nets, SD="0 " if "M" in nets else "1 ", CEMUX="CE")


def lut(bel, output, *inputs, **more):
    nets = dict(zip("ABCD", inputs, strict=False)) | {"F": output} | more
    return cell("TRELLIS_COMB", bel, {"F", "OFX", "FCO"}, nets)


def cell(kind, bel, outputs, nets, **parameters):
    return {
        "type": kind,
        "attributes": {"NEXTPNR_BEL": bel},
        "parameters": parameters,
        "port_directions": {port: "output" if port in outputs else "input" for port in nets},
        "connections": {port: [] if net is None else [net] for port, net in nets.items()},
    }
