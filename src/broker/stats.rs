//! What the broker counts. Monotonic counters; levels are derived from pairs of them or asked of their owner.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($(#[$about:meta])+ $stats:ident: $($(#[doc = $doc:literal])+ $name:ident => $metric:literal,)+) => {
        $(#[$about])+
        #[derive(Debug, Default)]
        pub struct $stats { $($(#[doc = $doc])+ pub $name: $crate::broker::stats::Counter,)+ }

        impl $stats {
            /// Every counter with its metric's name and description.
            pub fn each(&self, mut visit: impl FnMut(&'static str, &'static str, u64)) {
                $(visit($metric, concat!($($doc,)+), self.$name.get());)+
            }
        }
    };
}

pub(crate) use counters;

counters! {
    /// Counters of the whole broker.
    Stats:
    /// Network connections that sent a valid CONNECT and were accepted.
    connects => "tidegate_connects_total",
    /// CONNECTs refused.
    connects_refused => "tidegate_connects_refused_total",
    /// Connections that ended.
    disconnects => "tidegate_disconnects_total",
    /// Sessions taken over by a new connection.
    takeovers => "tidegate_takeovers_total",
    /// Sessions that expired.
    sessions_expired => "tidegate_sessions_expired_total",
    /// Bytes read from clients.
    bytes_received => "tidegate_bytes_received_total",
    /// Bytes written to clients.
    bytes_sent => "tidegate_bytes_sent_total",
    /// PUBLISH packets accepted from clients.
    published => "tidegate_messages_published_total",
    /// PUBLISH packets refused by a plugin.
    refused => "tidegate_messages_refused_total",
    /// PUBLISH packets thrown away by a plugin's decision.
    discarded => "tidegate_messages_discarded_total",
    /// Messages put into a consumer's queue.
    queued => "tidegate_messages_queued_total",
    /// PUBLISH packets written to clients, repetitions included.
    delivered => "tidegate_messages_delivered_total",
    /// Messages dropped because a consumer's queue was over its bound.
    dropped_full => "tidegate_messages_dropped_queue_full_total",
    /// Messages dropped because the consumer went away and did not want them kept.
    dropped_gone => "tidegate_messages_dropped_consumer_gone_total",
    /// Messages dropped because their publisher had left, or its connection was closed, before its turn came.
    dropped_left => "tidegate_messages_dropped_publisher_left_total",
    /// Messages dropped because they expired while waiting.
    dropped_expired => "tidegate_messages_dropped_expired_total",
    /// Messages dropped because they were larger than the consumer accepts.
    dropped_large => "tidegate_messages_dropped_too_large_total",
    /// Retained messages refused because the store was full.
    retained_refused => "tidegate_retained_refused_total",
    /// Packets that were malformed or broke the protocol.
    protocol_errors => "tidegate_protocol_errors_total",
    /// Connections ended because the client was silent for 1.5 times its keep-alive.
    keep_alive_timeouts => "tidegate_keep_alive_timeouts_total",
    /// Times a publisher was held because a queue it feeds was over its bound.
    holds => "tidegate_holds_total",
    /// Times more than listen.max_buffer was kept of a held publisher, so that what it sent behind could be heard.
    reliefs => "tidegate_reliefs_total",
    /// Times a consumer lost the right to hold publishers because it made no progress.
    stalled => "tidegate_consumers_stalled_total",
    /// Messages of plugins not sent because too many messages of the gateway itself waited; retained ones were kept.
    own_left_out => "tidegate_plugin_messages_left_out_total",
    /// Batches lost between publishers and dispatchers; always 0 unless there is a defect.
    spine_lost => "tidegate_spine_lost_total",
}

/// A counter that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        if n != 0 {
            self.0.fetch_add(n, Relaxed);
        }
    }

    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
