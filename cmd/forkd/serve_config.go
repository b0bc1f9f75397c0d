//go:build linux

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forkd/forkd/cmd/forkd/internal/serveconfig"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/api/routes/snapshots"
	"github.com/forkd/forkd/internal/leaf/undo"
)

// configOptions are the flags for the daemon's configuration file.
type configOptions struct {
	path  string
	check bool
	file  *serveconfig.File // nil without a file
}

// notInConfig are the flags a configuration file cannot have.
var notInConfig = []string{"config", "check"}

func (o *configOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.path, "config", "",
		"read flags from the YAML `FILE`, by their names without the dashes; flags of the command line win")
	f.BoolVar(&o.check, "check", false, "check flags and the files they name, print the settings, and exit")
}

// load sets the flags that the file names. Errors of later checks then name the file and the line.
func (o *configOptions) load(cmd *cobra.Command) error {
	if o.path == "" {
		return nil
	}
	var err error
	if o.file, err = serveconfig.Apply(o.path, ownFlags(cmd), notInConfig...); err != nil {
		return exit.UsageError{Err: fmt.Errorf("--config: %w", err)}
	}
	return nil
}

// ownFlags returns the flags of serve, without those of all commands.
func ownFlags(cmd *cobra.Command) *pflag.FlagSet {
	own := pflag.NewFlagSet(cmd.Name(), pflag.ContinueOnError)
	own.SortFlags = false
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Annotations[sectionOf] != nil {
			own.AddFlag(f)
		}
	})
	return own
}

// inFile rewrites an error about a flag that was set in the file: "--pool is ..." becomes
// "FILE:LINE: pool is ...".
func (o *configOptions) inFile(err error) error {
	if err == nil || o.file == nil {
		return err
	}
	text := err.Error()
	name, _, _ := strings.Cut(strings.TrimPrefix(text, "--"), " ")
	name = strings.TrimRight(name, ":")
	source := o.file.Source(name)
	if source == "" || !strings.HasPrefix(text, "--") {
		return err
	}
	return exit.UsageError{Err: fmt.Errorf("%s: %s", source, strings.TrimPrefix(text, "--"))}
}

// serveSetting is a flag with a value other than its default.
type serveSetting struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Source string `json:"source"` // "FILE:LINE" or "command line"
}

// serveChecked is the result of serve --check.
type serveChecked struct {
	Config   string         `json:"config,omitempty"` // the file
	Settings []serveSetting `json:"settings"`
	// Signatures is the policy of --signature-policy.
	Signatures []serveSigned `json:"signatures,omitempty"`
}

// checkOnly checks what can be checked without starting a daemon, and prints the settings.
func checkOnly(a *app, cmd *cobra.Command, o serveOptions) error {
	if err := o.checkFiles(a); err != nil {
		return o.config.inFile(err)
	}
	out := serveChecked{Config: o.config.path, Settings: []serveSetting{}, Signatures: o.signatures.shown()}
	ownFlags(cmd).VisitAll(func(f *pflag.Flag) {
		source := o.config.file.Source(f.Name)
		if slices.Contains(notInConfig, f.Name) || !f.Changed && source == "" {
			return
		}
		if source == "" {
			source = "command line"
		}
		out.Settings = append(out.Settings, serveSetting{f.Name, f.Value.String(), source})
	})
	if a.JSON {
		return a.Value(out)
	}
	rows := [][]string{}
	for _, s := range out.Settings {
		rows = append(rows, []string{s.Key, s.Value, s.Source})
	}
	a.Note("the configuration is valid")
	if err := a.Table([]string{"SETTING", "VALUE", "SOURCE"}, rows); err != nil {
		return err
	}
	return printSigned(a, out.Signatures)
}

// checkFiles reads the files named by flags. It only reads.
func (o *serveOptions) checkFiles(a *app) error {
	log, err := o.logs.Logger(a.Err)
	if err != nil {
		return err
	}
	if o.cgroup != cgroupAuto && o.cgroup != cgroupOff && !strings.HasPrefix(o.cgroup, "/") {
		return badCgroup(o.cgroup)
	}
	var opened undo.Stack
	defer opened.Run()
	_, _, tokenErr := o.token()
	guestFiles, filesErr := snapshots.OpenGuestFiles(o.guestFiles)
	if filesErr == nil {
		opened.Push(guestFiles.Close)
	}
	errs := []error{tokenErr, filesErr, dataFormat(o.data)}
	if !o.tls.selfSigned { // the certificate would be made
		_, tlsErr := o.tls.config(o.data, log)
		errs = append(errs, tlsErr)
	}
	_, groupErr := o.socketGroupID()
	return errors.Join(append(errs, groupErr)...)
}
