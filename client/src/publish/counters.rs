//! What a publisher counts.

/// What became of everything that was offered, since the publisher started.
///
/// Nothing vanishes: `offered = refused + replaced + dropped + rejected_samples + delivered_samples + waiting`, and the
/// same for urgent messages: `urgent_offered = urgent_refused + urgent_rejected + urgent_delivered + urgent_waiting`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PublisherStats {
    /// Samples offered.
    pub offered: u64,
    /// Samples that were not taken: the topic is no topic name, the policy can't take them, or there was no room.
    pub refused: u64,
    /// Samples that a newer one replaced, as the policy `Latest` means it.
    pub replaced: u64,
    /// Samples that had to make room for newer ones.
    pub dropped: u64,
    /// Samples in messages that the gateway refused for good.
    pub rejected_samples: u64,
    /// Samples in messages that were acknowledged, or sent with QoS 0.
    pub delivered_samples: u64,
    /// Samples that wait, in a buffer or for an acknowledgement.
    pub waiting: u64,
    /// Messages made of samples that were delivered.
    pub delivered_messages: u64,
    /// Urgent messages offered.
    pub urgent_offered: u64,
    /// Urgent messages that were not taken because there was no room, or the topic is no topic name.
    pub urgent_refused: u64,
    /// Urgent messages that the gateway refused for good.
    pub urgent_rejected: u64,
    /// Urgent messages that were acknowledged, or sent with QoS 0.
    pub urgent_delivered: u64,
    /// Urgent messages that wait, in the buffer or for an acknowledgement.
    pub urgent_waiting: u64,
    /// Urgent messages that were acknowledged, sent again since the broker had lost its session, and acknowledged again.
    pub urgent_repeated: u64,
    /// Urgent messages that are to be sent again for that reason.
    pub urgent_repeating: u64,
    /// Refusals because of the rate (0x97): the message went again later.
    pub pushed_back: u64,
    /// Announcements of rates that were followed.
    pub rates_followed: u64,
    /// Announcements with a lower number than one known.
    pub rates_stale: u64,
    /// Control messages that made no sense.
    pub nonsense: u64,
    /// Connections made.
    pub connections: u64,
}

impl PublisherStats {
    /// Whether everything that was offered is accounted for.
    pub fn is_conserved(&self) -> bool {
        let samples = self.refused + self.replaced + self.dropped + self.rejected_samples;
        let urgent = self.urgent_refused + self.urgent_rejected + self.urgent_delivered + self.urgent_waiting;
        self.offered == samples + self.delivered_samples + self.waiting && self.urgent_offered == urgent
    }
}
