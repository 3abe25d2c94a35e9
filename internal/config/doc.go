// Package config is the one table of Holdfast's numbers and names.
//
// Every setting is an environment variable with a unit, a default, a floor, a
// ceiling and the reason for them; the table in table.go is the only place that
// says so. [Parse] reads it, [Rows] prints it (holdfast config), and
// [Settings.Env] hands the effective values on: the infra app parses the same
// variables when it synthesizes the stack and gives every one of them to the
// functions, so that a value set at deploy is the value at run time.
//
// Some settings are only right together (a lease and its heartbeat, say). Those
// relations are in relations.go. Parse reports every fault and every broken
// relation at once, so that a person corrects an environment in one go.
//
// A variable that is unset or empty has its default. Durations are Go durations
// ("90s", "24h"), sizes are plain bytes, lists are separated by commas.
//
// Names of deployed things (table, buckets, queue, state machine, upstream) are
// no settings but [Resources]: they have no default, and each function needs
// only some of them. [ParseResources] names what is missing.
package config
