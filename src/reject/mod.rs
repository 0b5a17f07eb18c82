//! What a refused request gets: a [`Rejection`] says why, a [`Respond`] turns
//! it into a response of your body type.

mod rejection;
mod respond;

pub use self::{
    rejection::{Kind, Rejection},
    respond::{ProblemJson, Respond, StatusOnly},
};
