package config

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// unit says how a value is written and what it counts.
type unit struct {
	name     string
	duration bool // written as a Go duration
	whole    bool // whole seconds: SQS, Lambda and Step Functions take nothing finer
}

var (
	lines     = unit{name: "lines"}
	bytes     = unit{name: "bytes"}
	levels    = unit{name: "levels"}
	requests  = unit{name: "requests"}
	functions = unit{name: "functions"}
	megabytes = unit{name: "MB"}
	tries     = unit{name: "tries"}
	claims    = unit{name: "claims"}
	receives  = unit{name: "receives"}
	perMinute = unit{name: "wrong keys a minute"}
	duration  = unit{name: "duration", duration: true}
	seconds   = unit{name: "duration, whole seconds", duration: true, whole: true}
	paths     = unit{name: "paths, by comma"}
	windows   = unit{name: "durations, by comma"}
	models    = unit{name: "names, by comma"}
)

// row is one setting. The numbers are unused by lists.
type row struct {
	name                string
	unit                unit
	def, floor, ceiling int64
	why                 string
	field
}

// field is how a row reaches its place in Settings.
type field struct {
	get func(Settings) int64
	set func(*Settings, int64)

	// The rest is for lists.
	strings     func(*Settings) *[]string
	listDef     string
	least, most string
	allowedText string
	check       func(string) error
}

func number[T ~int | ~int64](at func(*Settings) *T) field {
	return field{
		get: func(s Settings) int64 { return int64(*at(&s)) },
		set: func(s *Settings, v int64) { *at(s) = T(v) },
	}
}

func list(def, least, most, allowed string, check func(string) error, at func(*Settings) *[]string) field {
	return field{strings: at, listDef: def, least: least, most: most, allowedText: allowed, check: check}
}

func (r row) isList() bool { return r.strings != nil }

func (r row) setDefault(s *Settings) {
	switch {
	case r.isList() && r.listDef == "":
		*r.strings(s) = nil
	case r.isList():
		*r.strings(s) = strings.Split(r.listDef, ",")
	case r.name == "HOLDFAST_HEARTBEAT":
		// The table's order puts the lease first. Whoever changes only the lease
		// gets a heartbeat that fits it.
		s.Heartbeat = s.Lease / 4
	default:
		r.set(s, r.def)
	}
}

// parse sets the field and returns the fault found, if any; ok is false when the
// value couldn't be read at all, and then the field isn't set.
func (r row) parse(raw string, s *Settings) (fault error, ok bool) {
	if r.isList() {
		return r.parseList(raw, s)
	}
	v, err := r.unit.parse(raw)
	if err != nil {
		return r.fault(raw), false
	}
	r.set(s, v)
	if v < r.floor || v > r.ceiling || r.unit.whole && v%second != 0 {
		return r.fault(raw), true
	}
	return nil, true
}

func (r row) parseList(raw string, s *Settings) (fault error, ok bool) {
	var (
		elements []string
		wrong    []string
	)
	for element := range strings.SplitSeq(raw, ",") {
		element = strings.TrimSpace(element)
		switch err := r.check(element); {
		case err != nil:
			wrong = append(wrong, fmt.Sprintf("%q %v", element, err))
		case slices.Contains(elements, element):
			wrong = append(wrong, fmt.Sprintf("%q is there twice", element))
		}
		elements = append(elements, element)
	}
	if wrong != nil {
		return &Fault{Name: r.name, Value: raw, Allowed: r.allowed() + "; " + strings.Join(wrong, ", ")}, false
	}
	*r.strings(s) = elements
	return nil, true
}

func (r row) fault(raw string) error {
	return &Fault{Name: r.name, Value: raw, Allowed: r.allowed()}
}

// allowed says in words what the variable takes.
func (r row) allowed() string {
	switch {
	case r.isList():
		return r.allowedText
	case r.unit.whole:
		return fmt.Sprintf("a duration in whole seconds from %s to %s", r.unit.format(r.floor), r.unit.format(r.ceiling))
	case r.unit.duration:
		return fmt.Sprintf("a duration from %s to %s", r.unit.format(r.floor), r.unit.format(r.ceiling))
	}
	return fmt.Sprintf("a whole number (%s) from %d to %d", r.unit.name, r.floor, r.ceiling)
}

func (r row) value(s Settings) string {
	if r.isList() {
		return strings.Join(*r.strings(&s), ",")
	}
	return r.unit.format(r.get(s))
}

func (r row) row(s Settings) Row {
	out := Row{Name: r.name, Unit: r.unit.name, Value: r.value(s), Why: r.why}
	var unset Settings
	unset.Lease = s.Lease // the heartbeat's default depends on it
	r.setDefault(&unset)
	out.Default = r.value(unset)
	if r.isList() {
		out.Floor, out.Ceiling = r.least, r.most
	} else {
		out.Floor, out.Ceiling = r.unit.format(r.floor), r.unit.format(r.ceiling)
	}
	return out
}

func (u unit) parse(raw string) (int64, error) {
	if u.duration {
		d, err := time.ParseDuration(raw)
		return int64(d), err
	}
	return strconv.ParseInt(raw, 10, 64)
}

func (u unit) format(v int64) string {
	if !u.duration {
		return strconv.FormatInt(v, 10)
	}
	text := time.Duration(v).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func checkWindow(element string) error {
	d, err := time.ParseDuration(element)
	switch {
	case err != nil:
		return errors.New("is no duration")
	case d%time.Second != 0:
		return errors.New("isn't in whole seconds")
	case d < time.Second || d > 7*24*time.Hour:
		return errors.New("is out of bounds")
	}
	return nil
}

func checkEndpoint(element string) error {
	switch {
	case !strings.HasPrefix(element, "/v1/") || element == "/v1/":
		return errors.New("doesn't begin with /v1/")
	case strings.ContainsAny(element, "?#% \t\\") || strings.Contains(element, "//") || strings.Contains(element, ".."):
		return errors.New("isn't a plain path")
	}
	return nil
}

// checkModel keeps to what a path can name.
func checkModel(element string) error {
	switch {
	case element == "" || len(element) > 200:
		return errors.New("isn't of 1 to 200 bytes")
	case strings.ContainsFunc(element, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`?#%"\`, r) }):
		return errors.New("isn't a plain name")
	case path.Clean("/"+element) != "/"+element:
		return errors.New("isn't a plain path")
	}
	return nil
}
