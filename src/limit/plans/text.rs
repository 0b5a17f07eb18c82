//! Plans as text, for configuration files and operators.

use std::{collections::BTreeSet, fmt, str::FromStr};

use crate::{
    limit::{
        plan::{Plan, PlanKind},
        quota::{DEFAULT_SLICES, Quota, Rule},
    },
    util::{error::ConfigError, scan::parse_digits},
};

/// Writes the plan as text that can be read again: `unlimited`, `denied`, or the quotas.
///
/// Quotas are separated by `;`. Each is written like a [`Quota`], and its other settings follow as words in any order:
///
/// | word | setting |
/// |---|---|
/// | `name=burst` | [`with_name`](Quota::with_name) |
/// | `slices=240` | [`slices`](Quota::slices) |
/// | `reserve=300` | [`reserve`](Quota::reserve), in units |
/// | `unit=bytes` | [`with_unit`](Quota::with_unit) |
/// | `shadow` | [`shadow`](Quota::shadow) |
///
/// ```
/// use tollgate::{Plan, Quota};
///
/// let plan: Plan = "50/second name=burst; 1200/minute reserve=600; 200000/day fixed name=daily shadow".parse()?;
/// assert_eq!(plan.quotas().count(), 3);
/// assert_eq!(plan.to_string().parse(), Ok(plan));
/// assert_eq!("600/minute".parse(), Ok(Plan::from(Quota::per_minute(600)?)));
/// assert_eq!("unlimited".parse(), Ok(Plan::unlimited()));
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            PlanKind::Unlimited { .. } => f.write_str("unlimited"),
            PlanKind::Denied { .. } => f.write_str("denied"),
            PlanKind::Limited { .. } => {
                for (place, quota) in self.quotas().enumerate() {
                    f.write_str(if place > 0 { "; " } else { "" })?;
                    write_quota(&quota, f)?;
                }
                Ok(())
            }
        }
    }
}

fn write_quota(quota: &Quota, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{quota}")?;
    if !quota.has_default_name() {
        write!(f, " name={}", quota.name())?;
    }
    match quota.rule() {
        Rule::Window { slices } if slices != DEFAULT_SLICES => write!(f, " slices={slices}")?,
        _ => {}
    }
    if quota.reserved() > 0 {
        write!(f, " reserve={}", quota.reserved())?;
    }
    if let Some(unit) = quota.unit() {
        write!(f, " unit={unit}")?;
    }
    f.write_str(if quota.is_shadow() { " shadow" } else { "" })
}

/// Reads what [`Display`](fmt::Display) writes.
impl FromStr for Plan {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        match text.trim_ascii() {
            "unlimited" => Ok(Self::unlimited()),
            "denied" => Ok(Self::denied()),
            quotas => Self::new(quotas.split(';').map(read_quota).collect::<Result<Vec<_>, _>>()?),
        }
    }
}

fn read_quota(text: &str) -> Result<Quota, ConfigError> {
    let mut words = text.split_ascii_whitespace().peekable();
    let mut amount = words.next().unwrap_or_default().to_owned();
    if let Some(rule) = words.next_if(|word| matches!(*word, "fixed" | "smooth" | "concurrent")) {
        amount = format!("{amount} {rule}");
    }
    let (mut quota, mut seen): (Quota, _) = (amount.parse()?, BTreeSet::new());
    for word in words {
        let invalid = |reason: &'static str| ConfigError::new("plan", word, reason);
        let (setting, value) = word.split_once('=').map_or((word, None), |(setting, value)| (setting, Some(value)));
        if !seen.insert(setting) {
            return Err(invalid("appears twice in one quota"));
        }
        quota = match (setting, value) {
            ("name", Some(name)) => quota.with_name(name)?,
            ("unit", Some(unit)) => quota.with_unit(unit)?,
            ("shadow", None) => quota.shadow(),
            ("slices", Some(value)) => {
                let slices = parse_digits(value).and_then(|slices| u16::try_from(slices).ok());
                quota.slices(slices.ok_or_else(|| invalid("must be a number from 1 to 1000"))?)?
            }
            ("reserve", Some(value)) => {
                let units = parse_digits(value).and_then(|units| u32::try_from(units).ok());
                let reserved = units.and_then(|units| quota.reserve_units(units));
                reserved.ok_or_else(|| invalid("must be a number of units, at most the limit"))?
            }
            _ => return Err(invalid("is neither name=…, slices=…, reserve=…, unit=… nor shadow")),
        };
    }
    Ok(quota)
}
