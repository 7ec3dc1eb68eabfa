//! Wall-clock time as templates print it. No clock: the time comes in from outside.

/// A moment in local time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalTime {
    /// Year, as 2026.
    pub year: i64,
    /// Month, 1 to 12.
    pub month: u8,
    /// Day of the month, 1 to 31.
    pub day: u8,
    /// Hour, 0 to 23.
    pub hour: u8,
    /// Minute, 0 to 59.
    pub minute: u8,
    /// Second, 0 to 59.
    pub second: u8,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const WEEKDAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

impl LocalTime {
    /// From seconds since 1970 at a place `offset` seconds east of Greenwich.
    pub fn from_unix(seconds: i64, offset: i64) -> LocalTime {
        let seconds = seconds.saturating_add(offset);
        let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        // Years are counted from March, so that the leap day is the last of a year; 146097 days
        // make 400 years.
        let days = days + 719_468;
        let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let small = |x: i64| u8::try_from(x).unwrap_or(0);
        LocalTime {
            year: year + era * 400 + i64::from(month >= 10),
            month: small((month + 2) % 12 + 1),
            day: small(day - (153 * month + 2) / 5 + 1),
            hour: small(rest / 3_600),
            minute: small(rest / 60 % 60),
            second: small(rest % 60),
        }
    }

    /// Python's `strftime` in the C locale. Unknown codes stay as they are.
    pub fn strftime(&self, format: &str) -> String {
        let mut out = String::new();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let rest = chars.as_str();
            let unpadded = rest.starts_with('-');
            let Some(code) = rest.chars().nth(usize::from(unpadded)) else {
                out.push_str(&format[format.len() - rest.len() - 1..]);
                return out;
            };
            chars.nth(usize::from(unpadded));
            let text = self.field(code).unwrap_or_else(|| match unpadded {
                true => format!("%-{code}"),
                false => format!("%{code}"),
            });
            match unpadded {
                true => out.push_str(match text.trim_start_matches(['0', ' ']) {
                    "" => "0",
                    text => text,
                }),
                false => out.push_str(&text),
            }
        }
        out
    }

    fn field(&self, code: char) -> Option<String> {
        let hour12 = (self.hour + 11) % 12 + 1;
        Some(match code {
            'Y' => self.year.to_string(),
            'y' => format!("{:02}", self.year.rem_euclid(100)),
            'm' => format!("{:02}", self.month),
            'd' => format!("{:02}", self.day),
            'e' => format!("{:2}", self.day),
            'H' => format!("{:02}", self.hour),
            'I' => format!("{hour12:02}"),
            'M' => format!("{:02}", self.minute),
            'S' => format!("{:02}", self.second),
            'f' => "000000".into(),
            'j' => format!("{:03}", self.day_of_year()),
            'B' => self.month_name().into(),
            'b' | 'h' => self.month_name().chars().take(3).collect(),
            'A' => self.weekday_name().into(),
            'a' => self.weekday_name().chars().take(3).collect(),
            'u' => (self.weekday() + 1).to_string(),
            'w' => ((self.weekday() + 1) % 7).to_string(),
            'p' => if self.hour < 12 { "AM" } else { "PM" }.into(),
            'F' => self.strftime("%Y-%m-%d"),
            'T' | 'X' => self.strftime("%H:%M:%S"),
            'R' => self.strftime("%H:%M"),
            'D' | 'x' => self.strftime("%m/%d/%y"),
            'c' => self.strftime("%a %b %e %H:%M:%S %Y"),
            'n' => "\n".into(),
            't' => "\t".into(),
            '%' => "%".into(),
            'z' | 'Z' => String::new(),
            _ => return None,
        })
    }

    fn month_name(&self) -> &'static str {
        MONTHS.get(usize::from(self.month).wrapping_sub(1)).copied().unwrap_or_default()
    }

    fn weekday_name(&self) -> &'static str {
        WEEKDAYS.get(self.weekday()).copied().unwrap_or_default()
    }

    fn is_leap(&self) -> bool {
        self.year % 4 == 0 && (self.year % 100 != 0 || self.year % 400 == 0)
    }

    fn day_of_year(&self) -> usize {
        const BEFORE: [usize; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
        let month = usize::from(self.month);
        let before = BEFORE.get(month.wrapping_sub(1)).copied().unwrap_or(0);
        before + usize::from(self.day) + usize::from(self.is_leap() && month > 2)
    }

    /// 0 is Monday.
    fn weekday(&self) -> usize {
        let years = self.year - 1;
        let days =
            years * 365 + years.div_euclid(4) - years.div_euclid(100) + years.div_euclid(400);
        let day = days + self.day_of_year() as i64 - 1;
        usize::try_from(day.rem_euclid(7)).unwrap_or(0)
    }
}
