//! Who can sign in: the app's own accounts behind `Users`, or `StoredUsers`.
