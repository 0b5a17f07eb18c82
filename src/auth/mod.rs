//! `AuthService`: the endpoints of a login, as a tower service.
