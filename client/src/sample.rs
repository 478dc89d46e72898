//! What a sensor hands over.

use bytes::Bytes;

/// One sample: a number, or bytes that only the application understands.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Sample {
    /// A measured value.
    Number(f64),
    /// Anything else.
    Bytes(Bytes),
}

impl Sample {
    /// The finite number that this is, or that its text says.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Bytes(bytes) => std::str::from_utf8(bytes).ok()?.trim().parse().ok(),
        }
        .filter(|number| number.is_finite())
    }

    /// The bytes to send: a number becomes its shortest decimal text.
    pub fn into_bytes(self) -> Bytes {
        match self {
            Self::Number(number) => number.to_string().into(),
            Self::Bytes(bytes) => bytes,
        }
    }

    /// About how many bytes it takes.
    pub fn size(&self) -> usize {
        match self {
            Self::Number(_) => size_of::<f64>(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }
}

macro_rules! from_number {
    ($($kind:ty),*) => {$(
        impl From<$kind> for Sample {
            fn from(number: $kind) -> Self {
                Self::Number(f64::from(number))
            }
        }
    )*};
}

from_number!(f64, f32, i8, i16, i32, u8, u16, u32);

macro_rules! from_bytes {
    ($($kind:ty),*) => {$(
        impl From<$kind> for Sample {
            fn from(bytes: $kind) -> Self {
                Self::Bytes(bytes.into())
            }
        }
    )*};
}

from_bytes!(Bytes, String, Vec<u8>);

impl From<&str> for Sample {
    fn from(text: &str) -> Self {
        Self::Bytes(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<&[u8]> for Sample {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(Bytes::copy_from_slice(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_says_a_number_is_one() {
        assert_eq!(Sample::from(" 21.5\n").number(), Some(21.5));
        assert_eq!(Sample::from(3u8).number(), Some(3.0));
        for odd in ["", "warm", "NaN", "inf", "1e999", "1,5"] {
            assert_eq!(Sample::from(odd).number(), None, "{odd}");
        }
        assert_eq!(Sample::Number(f64::NAN).number(), None);
    }

    #[test]
    fn numbers_are_sent_as_text_that_reads_back() {
        for number in [0.1 + 0.2, -1e-300, 12345678.9, 1e21] {
            assert_eq!(Sample::from(Sample::Number(number).into_bytes()).number(), Some(number));
        }
    }
}
