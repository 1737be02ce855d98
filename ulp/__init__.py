"""Upper layer protocols over the verbs: ONC RPC, RPC-over-RDMA, NFS, rping, perftest."""

# In the root of the repository the folder is in reach under its own name: all classes twice.
if __name__ != "stagecoach.ulp":
    raise ImportError("ulp is imported as stagecoach.ulp", name=__name__)
