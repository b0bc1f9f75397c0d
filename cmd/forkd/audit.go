package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
	"github.com/forkd/forkd/internal/domain/audit"
)

// auditOptions are the flags of `forkd audit`.
type auditOptions struct {
	file   string
	since  string
	filter audit.Filter
	result string
	reads  bool
	limit  int
	follow bool
}

func newAuditCommand(a *app) *cobra.Command {
	var o auditOptions
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Print the audit log",
		Long: "Print the last entries of the audit log of `forkd serve --audit-log`: each action, its caller and\n" +
			"its result. Read-only actions are omitted unless --reads is given.\n\n" +
			"The daemon shows the log to its operator only. With --file the command reads the files on this\n" +
			"host, without a daemon. With --json it prints the lines of the file unchanged\n" +
			"(docs/inside/formats/audit.md).",
		Example: "  forkd audit --since 1h --action sandbox.\n  forkd audit --result failed --follow\n" +
			"  forkd audit verify --file /var/log/forkd/audit.log",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := o.query(time.Now())
			if err != nil {
				return err
			}
			return readAudit(cmd.Context(), a, o.file, q)
		},
	}
	f := cmd.Flags()
	cmd.PersistentFlags().StringVar(&o.file, "file", "",
		"read `FILE` and its rotated files instead of asking the daemon")
	section(f, "Filters", func(f *pflag.FlagSet) {
		f.StringVar(&o.since, "since", "", "filter from `TIME` on: RFC 3339, or an age such as 90m")
		f.StringVar(&o.filter.Sandbox, "sandbox", "", "filter by sandbox `ID`")
		f.StringVar(&o.filter.Tenant, "tenant", "", "filter by tenant `NAME`")
		f.StringVar(&o.filter.Action, "action", "", "filter by `ACTION`, or by prefix if it ends in '.'")
		f.StringVar(&o.result, "result", "", "filter by `RESULT`: ok, refused or failed")
		f.StringVar(&o.filter.Request, "request", "", "filter by request `ID`")
		f.BoolVar(&o.reads, "reads", false, "include read-only actions")
	})
	f.IntVarP(&o.limit, "limit", "n", 100, "print the last `N` entries; 0: all")
	f.BoolVarP(&o.follow, "follow", "f", false, "follow new entries")
	cmd.AddCommand(newAuditVerifyCommand(a, &o), newAuditSealCommand(a, &o))
	return cmd
}

// query returns the query for the flags.
func (o auditOptions) query(now time.Time) (audit.Query, error) {
	q := audit.Query{Filter: o.filter, Last: o.limit, Follow: o.follow}
	q.Changes, q.Result = !o.reads, audit.Result(o.result)
	switch q.Result {
	case "", audit.OK, audit.Refused, audit.Failed:
	default:
		return q, exit.UsageError{Err: fmt.Errorf("--result %q: want ok, refused or failed", o.result)}
	}
	if o.limit < 0 {
		return q, exit.UsageError{Err: fmt.Errorf("--limit is %d, want at least 0", o.limit)}
	}
	var err error
	q.Since, err = sinceTime(o.since, now)
	return q, err
}

// readAudit prints lines of a file or of the daemon's log.
func readAudit(ctx context.Context, a *app, file string, q audit.Query) error {
	if file != "" {
		return audit.Read(ctx, file, q, func(line []byte, e audit.Entry) error {
			return printAuditLine(&a.Printer, line, e)
		})
	}
	return a.withClient(ctx, func(ctx context.Context, c *client.Client) error {
		req := client.AuditRequest{Since: q.Since, Sandbox: q.Sandbox, Tenant: q.Tenant, Action: q.Action,
			Result: string(q.Result), Request: q.Request, Changes: q.Changes, Limit: q.Last, Follow: q.Follow}
		return c.Audit(ctx, req, func(line []byte) error {
			e, err := audit.Decode(line)
			if err != nil {
				return fmt.Errorf("read the audit log: %w", err)
			}
			return printAuditLine(&a.Printer, line, e)
		})
	})
}

func printAuditLine(p *ui.Printer, line []byte, e audit.Entry) error {
	if p.JSON {
		return p.ValueLine(line, e)
	}
	_, err := fmt.Fprintln(p.Out, ui.Clean(auditText(e)))
	return err
}

// auditText returns one line. Its parts may come from untrusted clients.
func auditText(e audit.Entry) string {
	parts := []string{e.Time.UTC().Format(time.RFC3339), string(e.Result), e.Action}
	add := func(before, v string) {
		if v != "" {
			parts = append(parts, before+v)
		}
	}
	add("", e.Sandbox)
	add("snapshot ", e.Snapshot)
	add("image ", e.Image)
	add("", e.Object)
	if e.Count > 1 {
		add("", fmt.Sprintf("%d times", e.Count))
	}
	who := e.Principal
	if e.KeyName != "" {
		who = "key " + e.KeyName
	}
	add("by ", who)
	add("from ", e.Source)
	add("showing ", e.Claim)
	add("of ", e.Tenant)
	if e.Status > 0 {
		add("", ui.Duration(time.Duration(e.LatencyUS)*time.Microsecond))
	}
	add("request ", e.Request)
	if e.Lost > 0 {
		add("", fmt.Sprintf("%d actions before it are missing", e.Lost))
	}
	if note := e.Error + e.Note; note != "" {
		add("", "("+note+")")
	}
	return strings.Join(parts, "  ")
}

func newAuditVerifyCommand(a *app, o *auditOptions) *cobra.Command {
	var heads []string
	var allowDropped bool
	var keyFile string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check that the audit log is unchanged",
		Long: "Read all hash chains of the audit log and check their hashes. The last lines printed are the heads\n" +
			"of the chains. Store them on another machine: with --head a later run checks that the entries up\n" +
			"to them still exist. A log with seals needs no stored heads: see forkd audit seal.\n\n" +
			"The command fails if an entry was changed, or if the rotation of changes has removed the oldest\n" +
			"entries.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := verifyAudit(cmd.Context(), a, o.file, keyFile, heads)
			if err != nil {
				return err
			}
			return printAuditReport(&a.Printer, r, allowDropped)
		},
	}
	cmd.Flags().StringArrayVar(&heads, "head", nil,
		"check `HEAD`, printed by an earlier run; may be repeated")
	cmd.Flags().BoolVar(&allowDropped, "allow-dropped", false,
		"succeed even if rotation has removed the oldest entries")
	cmd.Flags().StringVar(&keyFile, "seal-key-file", "",
		"check the seals with the key in `FILE`, printed by forkd audit seal; needs --file")
	return cmd
}

func verifyAudit(ctx context.Context, a *app, file, keyFile string, heads []string) (r audit.Report, err error) {
	known := make([]audit.Head, len(heads))
	for i, text := range heads {
		if known[i], err = audit.ParseHead(text); err != nil {
			return r, exit.UsageError{Err: fmt.Errorf("--head: %w", err)}
		}
	}
	switch {
	case keyFile != "":
		return verifySealed(ctx, file, keyFile, known)
	case file != "":
		return audit.Verify(ctx, file, known...)
	}
	err = a.withClient(ctx, func(ctx context.Context, c *client.Client) error {
		w, err := c.VerifyAudit(ctx, heads...)
		r = audit.Report{OK: w.OK, Status: audit.Status(w.Status), Files: w.Files, Lines: w.Lines,
			First: w.First, Last: audit.Head(w.Last), Dropped: w.Dropped, Lost: w.Lost, Torn: w.Torn,
			Pending: w.Pending, Problems: []audit.Problem{}}
		for _, p := range w.Problems {
			r.Problems = append(r.Problems, audit.Problem(p))
		}
		for _, c := range w.Chains {
			r.Chains = append(r.Chains, audit.ChainReport{Chain: c.Chain, Lines: c.Lines, First: c.First,
				Last: audit.Head(c.Last), Dropped: c.Dropped, Since: c.Since,
				Changes: c.Changes, Counted: c.Counted})
		}
		return err
	})
	return r, err
}

// printAuditReport returns an error if the log was changed, or if changes were dropped without
// allowDropped.
func printAuditReport(a *ui.Printer, r audit.Report, allowDropped bool) error {
	if a.JSON {
		if err := a.Value(r); err != nil {
			return err
		}
	} else {
		writeAuditReport(a, r)
	}
	switch {
	case !r.OK:
		return errors.New("the audit log was changed")
	case r.Status == audit.Gone && !allowDropped:
		return errors.New("changes are missing from the audit log: full chains removed their oldest lines " +
			"(raise --audit-log-size or --audit-log-files of forkd serve, or accept this with --allow-dropped)")
	}
	return nil
}

func writeAuditReport(a *ui.Printer, r audit.Report) {
	for _, p := range r.Problems {
		where := p.File
		if p.Line > 0 {
			where += fmt.Sprintf(" line %d", p.Line)
		}
		fmt.Fprintln(a.Out, ui.Clean(where+": "+p.What))
	}
	for _, c := range r.Chains {
		if c.Dropped == 0 {
			continue
		}
		what := "GONE"
		if !c.Changes {
			what = "rotated"
		}
		since := ""
		if c.Since != nil {
			since = ", all from before " + c.Since.UTC().Format(time.RFC3339)
		}
		fmt.Fprintln(a.Out, ui.Clean(fmt.Sprintf("%s: lines 1 to %d of %s%s", what, c.Dropped, chainTitle(c.Chain), since)))
	}
	fmt.Fprintf(a.Out, "%d lines in %d files, %d to %d; %d actions are missing\n",
		r.Lines, r.Files, r.First, r.Last.Seq, r.Lost)
	if s := r.Sealed; s != nil && s.Seals > 0 {
		fmt.Fprintf(a.Out, "sealed until %s by seals %d to %d of key %s\n",
			s.Until.UTC().Format(time.RFC3339), s.First, s.Last, s.Key)
	}
	for _, c := range r.Chains {
		if c.Counted > 0 {
			fmt.Fprintf(a.Out, "%s: %d requests are counted without a line of their own\n", chainTitle(c.Chain), c.Counted)
		}
	}
	for _, c := range r.Chains {
		fmt.Fprintln(a.Out, ui.Clean("head "+c.Last.String()))
	}
}

// chainTitle returns the name of a chain for people.
func chainTitle(chain string) string {
	if chain == "" {
		return "the operator's changes"
	}
	return "chain " + chain
}
