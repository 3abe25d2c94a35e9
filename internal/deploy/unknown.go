package deploy

import (
	"fmt"
	"slices"
	"strings"

	"holdfast/internal/config"
)

// prefix is that of every variable of ours that a program reads.
const prefix = "HOLDFAST_"

// resources are the names of deployed things and services, and scripts are those that
// only commands, scripts and tests read. The table of settings has the rest. A test
// holds that no file of the repository reads one that isn't known here.
var (
	resources = []string{
		config.EnvTable, config.EnvInputsBucket, config.EnvResultsBucket, config.EnvWorkQueueURL, config.EnvDeadLettersURL, config.EnvStateMachineARN,
		config.EnvUpstreamURL, config.EnvUpstreamSecret, config.EnvUpstreamKey, config.EnvUpstreams, config.EnvUpstreamAllow,
		config.EnvIngestQueueURL, config.EnvIngestDeadLettersURL, config.EnvJobsURL, config.EnvJobsSecret, config.EnvJobsKey,
	}
	scripts = []string{
		"HOLDFAST_URL", "HOLDFAST_API_KEY", "HOLDFAST_GATEWAY_URL", "HOLDFAST_REAP_FUNCTION", "HOLDFAST_INGEST_FUNCTION",
		"HOLDFAST_PORT", "HOLDFAST_MODEL_PORT", "HOLDFAST_FRONT", "HOLDFAST_FRONT_PORT", "HOLDFAST_LOCAL", "HOLDFAST_NODE_MODULES", "HOLDFAST_CLI",
		"HOLDFAST_TEST_RUN_APP", "HOLDFAST_TEST_STEP", "HOLDFAST_E2E_UPLOAD_BYTES",
	}
)

// UnknownVariable is a variable that begins like ours and that nothing reads.
type UnknownVariable struct {
	Name    string
	Nearest string // the known one that it is likely meant to be, or empty
}

// Error says which it is, what it may have been meant to be, and what to do.
func (u *UnknownVariable) Error() string {
	if u.Nearest != "" {
		return fmt.Sprintf("%s: nothing reads it; is %s meant? Correct or unset it", u.Name, u.Nearest)
	}
	return fmt.Sprintf("%s: nothing reads it; `holdfast config` lists the settings. Unset it", u.Name)
}

// Unknown returns an [*UnknownVariable] for each variable of an environment
// (os.Environ) that begins with HOLDFAST_, has a value and is none that this release
// knows, by name. They are faults and no more than that would do: a setting that is
// misspelt has its default, and nobody sees that the wish didn't count.
func Unknown(environ []string) (faults []error) {
	all := known()
	environ = slices.Clone(environ)
	slices.Sort(environ)
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, prefix) && value != "" && !slices.Contains(all, name) {
			faults = append(faults, &UnknownVariable{Name: name, Nearest: nearest(strings.ToUpper(name), all)})
		}
	}
	return faults
}

func known() []string {
	all := slices.Concat(resources, scripts)
	for _, r := range config.Rows(config.Default()) {
		all = append(all, r.Name)
	}
	return all
}

// nearest is the known name that the fewest letters make of name, if they are at most
// a third of what follows the prefix.
func nearest(name string, all []string) (best string) {
	least := len(name[len(prefix):])/3 + 1
	for _, other := range all {
		if d := distance(name, other); d < least {
			best, least = other, d
		}
	}
	return best
}

// distance is how many letters must be put in, taken out or replaced to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			least := before
			if a[i] != b[j] {
				least = 1 + min(before, row[j], row[j+1])
			}
			before, row[j+1] = row[j+1], least
		}
	}
	return row[len(b)]
}
