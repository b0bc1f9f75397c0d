//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/forkd/forkd/cmd/forkd/internal/serveconfig"
)

// newGenerateCommand returns the command that writes the files of a package which follow from the
// commands. It is hidden: packagers use it, not users.
func newGenerateCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:    "generate DIR",
		Short:  "Write man pages, completions and an example of the configuration to DIR",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return generate(a, cmd.Root(), args[0])
		},
	}
}

func generate(a *app, root *cobra.Command, dir string) error {
	man := filepath.Join(dir, "man")
	if err := os.MkdirAll(man, 0o755); err != nil { // #nosec G301 -- the files are for every user
		return err
	}
	if err := manPages(root, man); err != nil {
		return err
	}
	for name, write := range map[string]func(string) error{
		"forkd.bash": func(file string) error { return root.GenBashCompletionFileV2(file, true) },
		"_forkd":     root.GenZshCompletionFile,
		"forkd.fish": func(file string) error { return root.GenFishCompletionFile(file, true) },
		"config.yaml": func(file string) error {
			return writeExampleConfig(a, file)
		},
	} {
		if err := write(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// manPages writes a page per command. The date is SOURCE_DATE_EPOCH, so that a build can be
// repeated.
func manPages(root *cobra.Command, dir string) error {
	date := time.Now()
	if n, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64); err == nil {
		date = time.Unix(n, 0)
	}
	root.DisableAutoGenTag = true
	return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Date: &date, Source: "forkd", Manual: "forkd"}, dir)
}

// packaged are the settings that a package uses. Its units depend on them (packaging/deb).
var packaged = []serveconfig.Setting{
	{Key: "socket-group", Value: "forkd", Why: "Members of this group use the daemon as the operator: " +
		"adduser USER forkd. Other users need a key (forkd key create)."},
	{Key: "data", Value: "/var/lib/forkd"},
	{Key: "run", Value: "/run/forkd/daemon"},
	{Key: "audit-log", Value: "/var/log/forkd/audit.log"},
	{Key: "cgroup", Value: "/sys/fs/cgroup/forkd.slice/forkd-vms.service", Why: "The cgroup of VMs. " +
		"forkd-vms.service delegates it, so that VMs and their limits outlive restarts of the daemon."},
}

func writeExampleConfig(a *app, file string) error {
	f, err := os.Create(file) // #nosec G304 -- the packager names the directory
	if err != nil {
		return err
	}
	defer f.Close()
	title := func(f *pflag.Flag) string { return f.Annotations[sectionOf][0] }
	if err := serveconfig.WriteExample(f, ownFlags(newServeCommand(a)), title, packaged, notInConfig...); err != nil {
		return err
	}
	return f.Close()
}
