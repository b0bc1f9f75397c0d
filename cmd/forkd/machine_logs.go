//go:build linux

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/cmd/internal/exit"
)

func newMachineLogsCommand(name *machineName) *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:   "logs",
		Short: "Print the machine's console",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if follow && name.app.JSON {
				return exit.UsageError{Err: errors.New("--follow prints text, not JSON")}
			}
			m, err := name.existing()
			if err != nil {
				return err
			}
			f, err := m.Console()
			if err != nil {
				return err
			}
			defer f.Close()
			if name.app.JSON {
				text, err := io.ReadAll(f)
				if err != nil {
					return err
				}
				return name.app.Value(map[string]string{"name": m.Name, "console": strings.ToValidUTF8(string(text), "?")})
			}
			return copyLog(cmd.Context(), cmd.OutOrStdout(), f, follow)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "follow new output")
	return cmd
}

// copyLog copies a growing file, which may be truncated by rotation.
func copyLog(ctx context.Context, out io.Writer, f *os.File, follow bool) error {
	var at int64
	for {
		n, err := io.Copy(out, f)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		at += n
		if !follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(200 * time.Millisecond):
		}
		if st, err := f.Stat(); err == nil && st.Size() < at {
			if at, err = f.Seek(0, io.SeekStart); err != nil {
				return err
			}
		}
	}
}
