package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"holdfast/internal/access"
)

// keyFlags are what the commands on keys have in common.
type keyFlags struct {
	api    bool
	tenant string
}

func (a *app) key() *cobra.Command {
	var f keyFlags
	c := &cobra.Command{Use: "key", Short: "Manage API keys", Args: cobra.NoArgs,
		Long: `Manage API keys: in the table HOLDFAST_TABLE, with the AWS credentials at hand, or
with --api through the API at HOLDFAST_URL, with the key in HOLDFAST_API_KEY.

With AWS credentials you are the operator: every tenant, every scope. A key with
the scope admin sees and disables the keys of its own tenant, and makes and
rotates those whose scopes are submit and read.

A key is named by its id, key_…; that opens nothing. What is changed is known
everywhere within 60 seconds.`,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.PersistentFlags().BoolVar(&f.api, "api", false, "through the API, with an admin key, instead of the table")
	c.PersistentFlags().StringVar(&f.tenant, "tenant", "", "whose keys (required without --api; with it, it is the admin key's)")
	c.AddCommand(a.keyCreate(&f), a.keyList(&f), a.keyDisable(&f), a.keyRotate(&f))
	return c
}

// book opens what the flags say, or says what is missing.
func (a *app) book(cmd *cobra.Command, f *keyFlags, missing ...string) (keyBook, error) {
	if f.api && f.tenant != "" {
		return nil, usage("Leave --tenant out.", "with --api the tenant is that of the key in %s", envKey)
	}
	if !f.api && f.tenant == "" {
		missing = append(missing, "tenant")
	}
	if len(missing) > 0 {
		return nil, lacking(cmd, missing...)
	}
	if f.api {
		c, err := a.client()
		if err != nil {
			return nil, err
		}
		return &apiKeys{c}, nil
	}
	if err := access.CheckTenant(f.tenant); err != nil {
		return nil, usage("", "%v", err)
	}
	store, table, err := openTable(cmd.Context(), a, a.keys)
	if err != nil {
		return nil, err
	}
	return &tableKeys{a, store, table, f.tenant}, nil
}

type newKey struct{ principal, scopes, name, expires string }

func (a *app) keyCreate(f *keyFlags) *cobra.Command {
	var k newKey
	c := &cobra.Command{
		Use:   "create",
		Short: "Make an API key; its secret is shown once",
		Long: `Make an API key. The secret goes to stdout, once: only its hash is stored.

Scopes, none of which implies another:
  submit        upload files, create batches
  read          see files, batches and results
  admin         see and redrive dead parts, reclaim, manage the tenant's keys
  batch_replay  call a model for the tenant of a batch while it runs, whichever
                tenant that is, and nothing else: it goes with no other scope
  work          for workers elsewhere; nothing asks for it yet
The last three are given with AWS credentials only, not with --api.`,
		Example: "  HOLDFAST_API_KEY=$(holdfast key create --tenant acme --principal ann@acme.example --name ci)",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return a.runKeyCreate(c, f, k) },
	}
	c.Flags().StringVar(&k.principal, "principal", "", "in whose name its batches run (required)")
	c.Flags().StringVar(&k.scopes, "scopes", "submit,read", "what it allows, separated by commas")
	c.Flags().StringVar(&k.name, "name", "", "a name to tell keys apart (required)")
	c.Flags().StringVar(&k.expires, "expires", "", "when it ends: a duration (720h) or a time (2027-01-31T00:00:00Z); default never")
	return c
}

func (a *app) runKeyCreate(cmd *cobra.Command, f *keyFlags, k newKey) error {
	now := a.now()
	want := access.Key{Tenant: f.tenant, Principal: k.principal, Name: k.name}
	var missing []string
	if k.principal == "" {
		missing = append(missing, "principal")
	}
	if k.name == "" {
		missing = append(missing, "name")
	}
	if len(missing) == 0 {
		var err error
		if want.ExpiresAt, err = parseExpiry(k.expires, now); err != nil {
			return err
		}
		// The scopes are checked with the rest, so that everything is said at once. With
		// --api the server knows the tenant; what is made here is thrown away.
		want.Scopes, _ = access.ParseScopes(k.scopes)
		check := want
		if f.api {
			check.Tenant = "checked-there"
		}
		if _, _, err := access.New(check, now); err != nil && (f.api || f.tenant != "") {
			return usage("See holdfast key create --help.", "the key won't do:\n  %s", strings.ReplaceAll(err.Error(), "\n", "\n  "))
		}
	}
	book, err := a.book(cmd, f, missing...)
	if err != nil {
		return err
	}
	made, secret, err := book.create(cmd.Context(), want, now)
	if err != nil {
		return err
	}
	return a.showSecret(made, secret, fmt.Sprintf("Key %q for %s, tenant %s, scopes %s: %s", made.Name, made.Principal, made.Tenant, strings.Join(made.Scopes, ","), made.ID))
}

// showSecret tells a secret, once, to whoever asked for it.
func (a *app) showSecret(k keyRecord, secret, what string) error {
	var err error
	if a.json {
		k.Secret = secret
		err = a.printJSON(k)
	} else {
		a.note("%s", printable(what))
		a.note("This is its secret. Keep it now: it is not stored and won't be shown again.")
		err = a.print("%s\n", secret)
	}
	if err != nil {
		return failed(fmt.Sprintf("The key %s is made all the same, and its secret is lost: rotate it, or disable it.", k.ID), err, "%v", err)
	}
	return nil
}

func (a *app) keyList(f *keyFlags) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List a tenant's API keys, newest first", Args: cobra.NoArgs,
		Long: `List a tenant's API keys, newest first. The day of the last use is coarse: a use is
noted once a day, at best. Keys made before there was a list are in it once they
were used.`,
		RunE: func(c *cobra.Command, _ []string) error {
			book, err := a.book(c, f)
			if err != nil {
				return err
			}
			keys, err := book.list(c.Context(), a.now())
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"keys": keys})
			}
			if len(keys) == 0 {
				a.note("There is no key.")
				return nil
			}
			var out strings.Builder
			w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "ID\tNAME\tPRINCIPAL\tSCOPES\tSTATUS\tCREATED\tLAST USED\tENDS\tREPLACED BY")
			for _, k := range keys {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", k.ID, printable(k.Name), printable(k.Principal), strings.Join(k.Scopes, ","), k.Status,
					k.CreatedAt.Format(time.DateOnly), orDash(k.LastUsedOn), ends(k), orDash(k.ReplacedBy))
			}
			if err := w.Flush(); err != nil {
				return failed("", err, "can't print the keys: %v", err)
			}
			return a.print("%s", out.String())
		},
	}
}

func ends(k keyRecord) string {
	if k.ExpiresAt == nil {
		return "-"
	}
	return k.ExpiresAt.Format(time.RFC3339)
}

func orDash(s *string) string {
	if s == nil {
		return "-"
	}
	return *s
}

func (a *app) keyDisable(f *keyFlags) *cobra.Command {
	return &cobra.Command{
		Use: "disable ID", Short: "End an API key for good", Args: cobra.ExactArgs(1),
		Long: `End an API key for good, everywhere within 60 seconds. Doing it again changes
nothing. A key may end itself.

ID - reads the secret of a key from stdin: for one that was found where it
shouldn't be.`,
		Example: "  holdfast key disable --tenant acme key_0123456789abcdef01234567\n  holdfast key disable --tenant acme - < found.txt",
		RunE: func(c *cobra.Command, args []string) error {
			id, hash, err := a.keyArgument(c.InOrStdin(), args[0])
			if err != nil {
				return err
			}
			book, err := a.book(c, f)
			if err != nil {
				return err
			}
			k, err := book.disable(c.Context(), id, hash, a.now())
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(k)
			}
			a.note("Key %s (%q of %s) is disabled since %s. It stops within 60 seconds, everywhere.", k.ID, k.Name, printable(k.Principal), stamp(k.DisabledAt))
			return nil
		},
	}
}

// keyArgument is a key's id, and its hash where the secret itself was given.
func (a *app) keyArgument(stdin io.Reader, arg string) (id, hash string, err error) {
	if arg != "-" {
		if _, ok := access.HashPrefix(arg); !ok {
			// Not repeated: it may be a secret that was given in the place of an id.
			return "", "", usage("holdfast key list shows ids. To name a key by its secret, give - and the secret on stdin.", "that is no id of a key, which looks like key_ and 24 hex digits")
		}
		return arg, "", nil
	}
	line, err := bufio.NewReader(io.LimitReader(stdin, 1<<10)).ReadString('\n')
	secret := strings.TrimSpace(line)
	if err != nil && !errors.Is(err, io.EOF) || !access.WellFormed(secret) {
		return "", "", usage("", "there is no key's secret on stdin")
	}
	hash = access.HashSecret(secret)
	return access.KeyID(hash), hash, nil
}

func (a *app) keyRotate(f *keyFlags) *cobra.Command {
	var grace time.Duration
	c := &cobra.Command{
		Use: "rotate ID", Short: "Make a key that takes another's place", Args: cobra.ExactArgs(1),
		Long: `Make a key with the same tenant, principal, scopes and name, and as long a life if
it has an end. Its secret goes to stdout, once. The old key goes on working for
the grace.

It can be done once to a key. If the secret was lost on the way, rotate the new
one: holdfast key list names it.`,
		RunE: func(c *cobra.Command, args []string) error {
			id, hash, err := a.keyArgument(c.InOrStdin(), args[0])
			if err != nil {
				return err
			}
			if grace < 0 || grace > access.MaxGrace || grace%time.Second != 0 {
				return usage("", "--grace must be from 0 to %s, in whole seconds", lasting(access.MaxGrace))
			}
			book, err := a.book(c, f)
			if err != nil {
				return err
			}
			made, secret, err := book.rotate(c.Context(), id, hash, grace, a.now())
			if err != nil {
				return err
			}
			then := "is good for " + lasting(grace) + " more at most"
			if grace == 0 {
				then = "has ended and stops within 60 seconds, everywhere"
			}
			return a.showSecret(made, secret, fmt.Sprintf("Key %s takes the place of %s, which %s.", made.ID, id, then))
		},
	}
	c.Flags().DurationVar(&grace, "grace", access.DefaultGrace, "how long the old key goes on working; 0: it ends now")
	c.Flags().Lookup("grace").DefValue = lasting(access.DefaultGrace)
	return c
}

func stamp(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// parseExpiry reads a duration from now or a time; zero for never.
func parseExpiry(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(s); err == nil {
		return now.Add(d), nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, usage("", "--expires %s is neither a duration (720h) nor a time (2027-01-31T00:00:00Z)", s)
	}
	if t.IsZero() { // the first instant of the year 1, which would be taken for never
		t = now
	}
	return t, nil
}
