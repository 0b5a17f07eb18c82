//! The order of tenants, and their names.

/// splitmix64: the same order in every run.
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        ((u128::from(mix(self.0)) * u128::from(bound)) >> 64) as u64
    }
}

/// Returns the 16 bytes of a tenant's name.
pub fn tenant_id(tenant: u64) -> [u8; 16] {
    let mut rest = mix(tenant.wrapping_add(1));
    std::array::from_fn(|_| {
        let digit = b"0123456789abcdef"[(rest & 15) as usize];
        rest >>= 4;
        digit
    })
}

fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}
