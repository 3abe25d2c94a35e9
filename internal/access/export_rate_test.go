package access

// Rated is how many tenants are kept.
func Rated(r *Rates) int { return len(r.tenants) }
