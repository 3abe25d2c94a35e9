package config

// claimStale is the one setting that never keeps a program from starting. What
// reads it also picks up what others left behind: a program that refuses to start
// over a typing error here would leave it there.
const claimStale = "HOLDFAST_CLAIM_STALE"

func (r row) fallsBack() bool { return r.name == claimStale }

// takes reports whether the value would do.
func (r row) takes(raw string) bool {
	var scratch Settings
	fault, ok := r.parse(raw, &scratch)
	return fault == nil && ok
}

// Fallbacks returns a [*Fault] for each variable whose value won't do and whose
// default holds instead. Parse says nothing of those: whoever starts a program
// must say it.
func Fallbacks(getenv func(string) string) (faults []error) {
	for _, r := range table {
		if raw := getenv(r.name); r.fallsBack() && raw != "" && !r.takes(raw) {
			faults = append(faults, r.fault(raw))
		}
	}
	return faults
}
