//! The clock behind `strftime_now`.

use std::sync::Arc;

use jiff::ZonedDateTime;
use jiff::civil::DateTime;

/// Tells the local time; replaced in tests and wherever prompts must not depend on the day.
pub type Clock = Arc<dyn Fn() -> LocalTime + Send + Sync>;

/// A date and time of day, of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalTime {
    /// −9999 to 9999.
    pub year: i16,
    /// 1 to 12.
    pub month: i8,
    /// 1 to 31.
    pub day: i8,
    /// 0 to 23.
    pub hour: i8,
    /// 0 to 59.
    pub minute: i8,
    /// 0 to 59.
    pub second: i8,
}

impl LocalTime {
    /// The system's local time.
    pub fn now() -> Self {
        let now = ZonedDateTime::now();
        Self {
            year: now.year(),
            month: now.month(),
            day: now.day(),
            hour: now.hour(),
            minute: now.minute(),
            second: now.second(),
        }
    }

    /// Formatted as C's `strftime` does in the C locale.
    pub(crate) fn format(&self, format: &str) -> Result<String, jiff::Error> {
        let time = DateTime::new(
            self.year,
            self.month,
            self.day,
            self.hour,
            self.minute,
            self.second,
            0,
        )?;
        jiff::fmt::strtime::format(format, time)
    }
}

pub(crate) fn system() -> Clock {
    Arc::new(LocalTime::now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_like_strftime_and_refuses_impossible_dates() {
        let time = LocalTime {
            year: 2024,
            month: 7,
            day: 4,
            hour: 15,
            minute: 5,
            second: 9,
        };
        assert_eq!(time.format("%d %b %Y").unwrap(), "04 Jul 2024");
        assert_eq!(
            time.format("%A, %B %-d %H:%M:%S %j%%").unwrap(),
            "Thursday, July 4 15:05:09 186%"
        );
        assert!(LocalTime { month: 13, ..time }.format("%d").is_err());
        assert!(time.format("%").is_err());
    }
}
