//! How many unacknowledged messages a client may have.
//!
//! A large window hides a queue in the client's socket; a small one starves a fast client. So the window grows
//! while acknowledgements come back promptly and shrinks when they don't: what waits, waits where it is seen.

use super::clock::Millis;

/// The in-flight window towards one client.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    size: u32,
    max: u32,
    late: u32,
}

/// Acknowledgements within this time let the window grow.
const PROMPT: Millis = 10;
/// Acknowledgements later than this make it shrink.
const LATE: Millis = 25;
/// The window never shrinks below this.
const MIN: u32 = 20;

impl Window {
    /// A window for a client that accepts `max` at a time.
    pub fn new(max: u16) -> Self {
        let max = u32::from(max.max(1));
        Self { size: MIN.min(max), max, late: 0 }
    }

    /// Its size now.
    pub fn size(&self) -> usize {
        self.size as usize
    }

    /// One message was acknowledged after `delay`.
    pub fn acknowledged(&mut self, delay: Millis) {
        if delay <= PROMPT {
            self.size = (self.size + 1).min(self.max);
        } else if delay > LATE {
            // one place for every eighth: an eighth of the window for each round trip
            self.late += 1;
            if self.late.is_multiple_of(8) {
                self.size = (self.size - 1).max(MIN.min(self.max));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_with_prompt_and_shrinks_with_late_acknowledgements() {
        let mut window = Window::new(1000);
        for _ in 0..5000 {
            window.acknowledged(1);
        }
        assert_eq!(window.size(), 1000);
        for _ in 0..1000 {
            window.acknowledged(LATE + 1);
        }
        assert_eq!(window.size(), 875);
        for _ in 0..100_000 {
            window.acknowledged(LATE + 1);
        }
        assert_eq!(window.size(), MIN as usize);
    }

    #[test]
    fn it_respects_the_clients_maximum() {
        let mut window = Window::new(2);
        assert_eq!(window.size(), 2);
        window.acknowledged(0);
        window.acknowledged(1000);
        assert_eq!(window.size(), 2);
    }
}
