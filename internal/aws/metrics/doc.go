// Package metrics writes what a function counted as a line of its log from which
// CloudWatch makes metrics: the embedded metric format. No call is made, so
// counting costs neither time nor a grant, and the numbers come out as the log
// does.
//
//	Table      every metric there is: unit, how it adds up, who writes it
//	Recorder   adds up and writes the line
//
// A line has names of [Table] and numbers, and nothing else: no tenant, batch or
// text of anybody's. All metrics are in [Namespace] and without a dimension, so
// that one alarm sees what all functions write, and a metric is paid for once
// (CloudWatch bills each combination of name and dimensions).
//
// The format's types and units are those of prozz/aws-embedded-metrics-golang, the
// only Go library for it that is to be had. Its last release is of 2021, which is
// good enough here: the format has only grown optional members since. Its Logger
// isn't used: it writes "Dimensions":null where there are none (the format wants
// an array of sets, the empty one being [[]]), swallows the error of a number that
// JSON doesn't have, and adds the process's environment. The tests check the line
// against the format's own rules instead: members, types, lengths, that each named
// metric is there as a number, and its size.
package metrics
