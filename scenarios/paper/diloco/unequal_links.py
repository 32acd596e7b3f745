"""Links of which one is slower than the others."""

from dataclasses import dataclass, replace

from ddlsim.network.access_links import Uniform


@dataclass(frozen=True, kw_only=True)
class OneHalfLink(Uniform):
    """Every node has the same links, except node 0, whose uplink and downlink have half of their capacity."""

    def draw(self, num_nodes, seed):
        table = super().draw(num_nodes, seed)
        up, down = table.uplink_bytes_per_s.copy(), table.downlink_bytes_per_s.copy()
        up[0], down[0] = up[0] / 2, down[0] / 2
        return replace(table, uplink_bytes_per_s=up, downlink_bytes_per_s=down)
