package limits

// Kept is of how many tenants something is remembered.
func Kept(g *Gate) int { return len(g.kept) }
