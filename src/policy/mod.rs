//! Which steps a login needs: `Method`s, the `Policy` over them, and the plan of one login.
