//! Tests whether two samples differ.

/// Returns the probability that a value of `right` is greater than one of `left`, counting ties as half, and its
/// distance from one half in standard deviations (the Mann-Whitney test).
pub fn ranks(left: &[f64], right: &[f64]) -> (f64, f64) {
    let mut all: Vec<(f64, bool)> = left.iter().map(|value| (*value, false)).collect();
    all.extend(right.iter().map(|value| (*value, true)));
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (n, m) = (left.len() as f64, right.len() as f64);
    let (mut sum, mut ties, mut at) = (0.0, 0.0, 0);
    while at < all.len() {
        let alike = all[at..].iter().take_while(|one| one.0 == all[at].0).count();
        let rank = at as f64 + (alike as f64 + 1.0) / 2.0;
        sum += rank * all[at..at + alike].iter().filter(|one| one.1).count() as f64;
        ties += (alike as f64).powi(3) - alike as f64;
        at += alike;
    }
    let u = sum - m * (m + 1.0) / 2.0;
    let total = n + m;
    let spread = (n * m / 12.0 * (total + 1.0 - ties / (total * (total - 1.0)))).sqrt();
    (u / (n * m), (u - n * m / 2.0) / spread)
}

/// Returns Welch's t for the values below `crop`, a quantile of both samples together. Noise only makes calls slower,
/// so differences show in the fast ones (dudect does the same).
pub fn welch(left: &[f64], right: &[f64], crop: f64) -> f64 {
    let below = |values: &[f64]| values.iter().copied().filter(|value| *value <= crop).collect::<Vec<_>>();
    let (left, right) = (below(left), below(right));
    let of = |values: &[f64]| {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
        (mean, variance / count)
    };
    let ((a, s), (b, t)) = (of(&left), of(&right));
    (b - a) / (s + t).sqrt()
}
