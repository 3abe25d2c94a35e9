package main

import (
	"errors"
	"fmt"
	"net/mail"
	"os"
	"path/filepath"

	"holdfast/internal/config"
)

// options is everything that decides what the stack looks like.
type options struct {
	settings     config.Settings
	upstream     config.Upstream
	functions    string // folder of the built functions
	architecture string // arm64 or amd64
	destroy      bool   // table and buckets go with the stack
	alarmEmail   string // who is told of alarms, or empty
}

// parseOptions reads the environment and the CDK context. The error joins every
// fault of both.
func parseOptions(getenv, context func(string) string) (options, error) {
	settings, settingsErr := config.Parse(getenv)
	resources, resourcesErr := config.ParseResources(getenv, config.Deploy)
	faults := []error{settingsErr, resourcesErr}

	if resources.Upstream.Key != "" && getenv("AWS_ENDPOINT_URL") == "" {
		faults = append(faults, fmt.Errorf(
			"%s is for a local AWS (AWS_ENDPOINT_URL) only: a function's variables are readable by everybody who may describe it; name a secret in %s instead",
			config.EnvUpstreamKey, config.EnvUpstreamSecret))
	}

	o := options{settings: settings, upstream: resources.Upstream, architecture: context("architecture")}
	switch o.architecture {
	case "":
		o.architecture = "arm64"
	case "arm64", "amd64":
	default:
		faults = append(faults, fmt.Errorf("context architecture=%s: must be arm64 or amd64", o.architecture))
	}
	switch removal := context("removal"); removal {
	case "", "retain":
	case "destroy":
		o.destroy = true
	default:
		faults = append(faults, fmt.Errorf("context removal=%s: must be retain or destroy", removal))
	}
	if o.alarmEmail = context("alarmEmail"); o.alarmEmail != "" {
		faults = append(faults, checkEmail(o.alarmEmail))
	}
	o.functions = context("functions")
	if o.functions == "" {
		o.functions = filepath.Join(".local", "build", o.architecture)
	}
	for _, role := range []config.Role{config.API, config.Plan, config.Work, config.Finish, config.Reap} {
		bootstrap := filepath.Join(o.functions, role.Name, "bootstrap")
		if info, err := os.Stat(bootstrap); err != nil || !info.Mode().IsRegular() {
			faults = append(faults, fmt.Errorf("context functions=%s: %s isn't there; build the functions first", o.functions, bootstrap))
		}
	}
	return o, errors.Join(faults...)
}

// checkEmail refuses what is not one plain address: SNS would take it, and then
// ask nobody to confirm.
func checkEmail(s string) error {
	if a, err := mail.ParseAddress(s); err != nil || a.Address != s {
		return fmt.Errorf("context alarmEmail=%s: must be one e-mail address and no more", s)
	}
	return nil
}
