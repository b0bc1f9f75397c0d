package endpoint

import (
	"cmp"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/cmd/internal/contexts"
)

// ContextName returns the name of the context in effect. It is contexts.Default if there is none,
// also because a flag or the environment names a daemon.
func (f Flags) ContextName() (string, error) {
	name, _, err := f.context()
	return name, err
}

// context returns the name of the context in effect, with the contexts of the user's file. It does
// not read the file if none of them can be in effect.
func (f Flags) context() (string, contexts.File, error) {
	var file contexts.File
	name := f.Context
	if name == "" && (f.URL != "" || f.Host || f.ForceHost || f.Machine || f.MachineName != "" || named()) {
		return contexts.Default, file, nil
	}
	name = cmp.Or(name, os.Getenv("FORKD_CONTEXT"))
	if name == contexts.Default {
		return name, file, nil
	}
	path, err := contexts.Path()
	if err != nil {
		if name == "" { // a service without a home directory
			return contexts.Default, file, nil
		}
		return "", file, err
	}
	if file, err = contexts.Load(path); err != nil {
		return "", file, err
	}
	return cmp.Or(name, file.Current, contexts.Default), file, nil
}

// named reports whether the environment names a daemon, with precedence over its FORKD_CONTEXT.
func named() bool { return os.Getenv("FORKD_URL") != "" || os.Getenv("FORKD_MACHINE") != "" }

// Chosen returns the flags with the values of the context in effect. Other flags have precedence
// over its values.
func (f Flags) Chosen() (Flags, error) {
	if f.search {
		return f, nil
	}
	name, file, err := f.context()
	switch {
	case err != nil:
		return f, err
	case name == contexts.Default:
		f.search = f.Context == contexts.Default
		return f, nil
	}
	c, err := file.Get(name)
	if err != nil {
		return f, err
	}
	if f.Token == "" {
		if f.Token, err = c.ReadToken(); err != nil {
			return f, fmt.Errorf("context %s: %w", name, err)
		}
	}
	f.Context, f.URL, f.MachineName, f.Host = "", c.URL, c.Machine, c.Host
	f.Fingerprint = cmp.Or(f.Fingerprint, c.Fingerprint)
	if f.Cert == "" && f.Key == "" {
		f.Cert, f.Key = c.Cert, c.Key
	}
	return f, nil
}

// completeContexts lists the contexts for the shell.
func completeContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return ContextNames(), cobra.ShellCompDirectiveNoFileComp
}

// ContextNames returns all names of contexts, with the built-in one first. A file that cannot be read
// has none.
func ContextNames() []string {
	names := []string{contexts.Default}
	if path, err := contexts.Path(); err == nil {
		if file, err := contexts.Load(path); err == nil {
			names = append(names, file.Names()...)
		}
	}
	return names
}
