package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
	"github.com/forkd/forkd/internal/domain/audit"
	"github.com/forkd/forkd/internal/domain/audit/seal"
	"github.com/forkd/forkd/internal/leaf/keyfile"
)

func newAuditSealCommand(a *app, o *auditOptions) *cobra.Command {
	var renew bool
	var out string
	cmd := &cobra.Command{
		Use:   "seal",
		Short: "Start to seal the audit log against forged history",
		Long: "Create a key, print it once, and make the daemon seal the log of --file each minute. Run it on the\n" +
			"daemon's host. The daemon starts within a minute and needs no restart.\n\n" +
			"Store the printed key on another machine: it verifies all seals. The host keeps only the key of\n" +
			"the next seal, so an attacker cannot forge earlier seals.",
		Example: "  forkd audit seal --file /var/log/forkd/audit.log\n" +
			"  forkd audit verify --file audit.log --seal-key-file seal.key   # elsewhere, on a copy of the files",
		Args: cobra.NoArgs,
		RunE: func(_ *cobra.Command, _ []string) error {
			if o.file == "" {
				return exit.UsageError{Err: errors.New("audit seal needs --file: the log of `forkd serve --audit-log` on this host")}
			}
			return startSealing(&a.Printer, o.file, out, renew)
		},
	}
	cmd.Flags().BoolVar(&renew, "renew", false, "replace the key of a log with seals, if you lost it")
	cmd.Flags().StringVar(&out, "key-out", "", "write the key to the new file `FILE` instead of standard output")
	return cmd
}

// startSealing opens the file for the key first: a key that cannot be stored must not be in use.
func startSealing(p *ui.Printer, log, out string, renew bool) (err error) {
	var file *os.File
	if out != "" {
		if file, err = os.OpenFile(out, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err != nil {
			return fmt.Errorf("--key-out: %w", err)
		}
		defer func() {
			if err = errors.Join(err, file.Close()); err != nil {
				_ = os.Remove(out)
			}
		}()
	}
	key, err := audit.StartSealing(log, renew)
	if err != nil {
		return fmt.Errorf("seal %s: %w", log, err)
	}
	if file != nil {
		if _, err := fmt.Fprintln(file, key.Text()); err != nil {
			return err
		}
		if err := file.Sync(); err != nil {
			return err
		}
	}
	if p.JSON {
		r := struct {
			ID  string `json:"id"`
			Key string `json:"key,omitempty"`
			Out string `json:"key_file,omitempty"`
		}{ID: key.ID(), Out: out}
		if out == "" {
			r.Key = key.Text()
		}
		return p.Value(r)
	}
	if out == "" {
		fmt.Fprintln(p.Out, key.Text())
	}
	fmt.Fprintf(p.Err, "%s is sealed with key %s within a minute. Store the key on another machine and delete it here.\n",
		log, key.ID())
	return nil
}

// verifySealed verifies the files of a log and their seals. The key of the seals never goes to a daemon: an
// attacker who has taken over the daemon could forge every seal with it.
func verifySealed(ctx context.Context, file, keyFile string, known []audit.Head) (audit.Report, error) {
	if file == "" {
		return audit.Report{}, exit.UsageError{Err: errors.New(
			"--seal-key-file needs --file: copy the log's files to a machine you trust, and verify them there")}
	}
	text, err := keyfile.Read(keyFile)
	if err != nil {
		return audit.Report{}, fmt.Errorf("--seal-key-file: %w", err)
	}
	key, err := seal.Parse(text)
	if err != nil {
		return audit.Report{}, fmt.Errorf("--seal-key-file %s: %w", keyFile, err)
	}
	return audit.VerifySealed(ctx, file, key, known...)
}
