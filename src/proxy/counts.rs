//! What the proxy counts beyond what the broker counts too, and its bounded log lines.

use crate::broker::lines::Limit;
use crate::broker::stats::counters;

counters! {
    /// Counters of what happens between the proxy and the broker behind it.
    Counts:
    /// Connections to the upstream broker that answered a CONNECT.
    connected => "tidegate_upstream_connects_total",
    /// Attempts to reach an address of the upstream broker that failed.
    failed => "tidegate_upstream_failures_total",
    /// Clients that the upstream broker itself refused.
    refused => "tidegate_upstream_refused_total",
    /// Clients refused because no address of the upstream broker could be used.
    unavailable => "tidegate_upstream_unavailable_total",
    /// Connections that the upstream broker ended without a word.
    lost => "tidegate_upstream_lost_total",
    /// Connections ended because the upstream broker sent what is not MQTT.
    nonsense => "tidegate_upstream_nonsense_total",
    /// Times an address of the upstream broker was left alone after it failed.
    opened => "tidegate_upstream_breaker_opened_total",
    /// Times an address of the upstream broker worked again.
    recovered => "tidegate_upstream_recovered_total",
    /// Bytes read from the upstream broker.
    bytes_received => "tidegate_upstream_bytes_received_total",
    /// Bytes written to the upstream broker.
    bytes_sent => "tidegate_upstream_bytes_sent_total",
    /// Packets changed on their way, in either direction.
    changed => "tidegate_proxy_packets_changed_total",
    /// PINGREQs sent to the upstream broker in the name of clients whose packets are held or answered here.
    pings => "tidegate_proxy_pings_total",
    /// Answers of sources that say how long queues are.
    source_answers => "tidegate_source_answers_total",
    /// Questions to sources that were not answered.
    source_failures => "tidegate_source_failures_total",
    /// Messages in which this node said what it sees.
    node_told => "tidegate_node_messages_sent_total",
    /// Messages of other nodes that were taken in.
    node_heard => "tidegate_node_messages_received_total",
    /// Messages on the topics of nodes that could not be read or could not be true, as a whole or in part.
    node_nonsense => "tidegate_node_nonsense_total",
    /// Nodes, and queues and filters of this node, that were left out because there were too many or they were too long.
    node_left_out => "tidegate_node_left_out_total",
    /// Times the connection on which nodes hear of each other could not be made or ended.
    node_failures => "tidegate_node_link_failures_total",
}

/// One limit for each kind of line.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// A client broke the rules, or was refused.
    pub(super) client: Limit,
    /// A publish or a subscription was refused.
    pub(super) refused: Limit,
    /// The upstream refused a client.
    pub(super) turned_away: Limit,
    /// The upstream could not be used.
    pub(super) upstream: Limit,
    /// The upstream ended a connection.
    pub(super) lost: Limit,
    /// The upstream sent nonsense.
    pub(super) nonsense: Limit,
    /// A connection ended by a panic.
    pub(super) panicked: Limit,
}

impl Lines {
    /// Says once how many lines were left out since the last time, by kind.
    pub(super) fn report(&self) {
        for (kind, limit) in [
            ("clients closed or refused", &self.client),
            ("refused publishes and subscriptions", &self.refused),
            ("clients refused by the upstream", &self.turned_away),
            ("upstream not usable", &self.upstream),
            ("connections lost by the upstream", &self.lost),
            ("nonsense from the upstream", &self.nonsense),
            ("panics", &self.panicked),
        ] {
            let left_out = limit.take_left_out();
            if left_out > 0 {
                tracing::warn!(left_out, kind, "log lines were left out: there were too many of their kind");
            }
        }
    }
}
