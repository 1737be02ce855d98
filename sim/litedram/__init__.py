"""A model of LiteDRAM's standalone core for an ECPIX-5, with its DDR3, behind its registers."""
