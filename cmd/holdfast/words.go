package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// number is n of something, by the word that fits: "1 batch", "2 batches".
func number[N int | int64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// lasting is a duration without zeros at its end: 1h, not 1h0m0s.
func lasting(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// seeHelp points to the help of the command that was called wrongly.
func seeHelp(c *cobra.Command) string { return "See " + c.CommandPath() + " --help." }

// nameArguments has c, and each command under it, say by the names of its use line
// which of its arguments are missing; of one that only prints its help, and with
// --json can't, which commands it has.
func (a *app) nameArguments(c *cobra.Command) {
	if help := c.RunE; help != nil && c.HasSubCommands() && len(strings.Fields(c.Use)) == 1 {
		c.RunE = func(c *cobra.Command, args []string) error {
			if !a.json {
				return help(c, args)
			}
			var names []string
			for _, sub := range c.Commands() {
				if sub.IsAvailableCommand() && sub.Name() != "help" {
					names = append(names, sub.Name())
				}
			}
			return usage(seeHelp(c), "name a command of %s: %s", c.CommandPath(), strings.Join(names, ", "))
		}
	}
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return misused(c, args, err)
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		a.nameArguments(sub)
	}
}

// misused words err, which is about the number of c's arguments.
func misused(c *cobra.Command, args []string, err error) *failure {
	names := strings.Fields(c.Use)[1:]
	switch {
	case len(names) == 0 && c.HasSubCommands():
		return usage(seeHelp(c), "%v", err) // which names the word that is no command
	case len(names) == 0:
		return usage(seeHelp(c), "%s takes no argument", c.CommandPath())
	case len(args) >= len(names):
		return usage(seeHelp(c), "too many arguments: %s", c.UseLine())
	}
	var missing []string
	for _, name := range names[len(args):] {
		article := "a "
		if name == "ID" {
			article = "an "
		}
		missing = append(missing, article+strings.TrimSuffix(name, "..."))
	}
	return usage(seeHelp(c), "name %s: %s", strings.Join(missing, " and "), c.UseLine())
}

// lacking is about flags that must be given.
func lacking(c *cobra.Command, flags ...string) *failure {
	return usage(seeHelp(c), "required and not given: --%s", strings.Join(flags, ", --"))
}
