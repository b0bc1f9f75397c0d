package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// sectionOf is the annotation of a flag with the title of its section in a command's help.
const sectionOf = "forkd-section"

// helpWidth limits the columns of help texts. pflag wraps up to 5 columns late.
const helpWidth = 100 - 5

// section adds flags to f under a title in the command's help. Sections appear in the order of
// their calls.
func section(f *pflag.FlagSet, title string, add func(*pflag.FlagSet)) {
	part := pflag.NewFlagSet(title, pflag.ContinueOnError)
	add(part)
	part.VisitAll(func(flag *pflag.Flag) { flag.Annotations = map[string][]string{sectionOf: {title}} })
	f.SortFlags = false // help sorts each section
	f.AddFlagSet(part)
}

// newFlagsTopic returns the text of `forkd help flags`: the flags of all commands.
func newFlagsTopic(global *pflag.FlagSet) *cobra.Command {
	return &cobra.Command{
		Use:   "flags",
		Short: "Flags of all commands",
		Long:  "Flags of all commands:\n\n" + strings.TrimRight(global.FlagUsagesWrapped(helpWidth), "\n"),
	}
}

// printUsage prints the part of a command's help after its description. Flags of all commands are
// only in `forkd help flags`.
func printUsage(cmd *cobra.Command) error {
	var b strings.Builder
	printForms(&b, cmd)
	if cmd.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}
	printCommands(&b, cmd)
	printFlags(&b, cmd)
	if cmd.Name() == "flags" {
		b.Reset()
	} else {
		printPointers(&b, cmd)
	}
	_, err := io.WriteString(cmd.OutOrStderr(), b.String())
	return err
}

func printForms(b *strings.Builder, cmd *cobra.Command) {
	b.WriteString("Usage:\n")
	if !cmd.HasAvailableSubCommands() || cmd.HasAvailableLocalFlags() && cmd.HasExample() {
		fmt.Fprintf(b, "  %s\n", cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(b, "  %s COMMAND\n", cmd.CommandPath())
	}
	if len(cmd.Aliases) > 0 {
		fmt.Fprintf(b, "\nAliases:\n  %s\n", cmd.NameAndAliases())
	}
}

// printCommands prints a list of subcommands, by groups if there are any.
func printCommands(b *strings.Builder, cmd *cobra.Command) {
	lists := []cobra.Group{{Title: "Commands:"}}
	if len(cmd.Groups()) > 0 {
		lists[0].Title = "Other commands:"
	}
	for _, g := range slices.Backward(cmd.Groups()) {
		lists = slices.Insert(lists, 0, *g)
	}
	for _, list := range lists {
		title := "\n" + list.Title + "\n"
		for _, child := range cmd.Commands() {
			if child.GroupID != list.ID || !child.IsAvailableCommand() && child.Name() != "help" {
				continue
			}
			fmt.Fprintf(b, "%s  %-*s %s\n", title, cmd.Commands()[0].NamePadding(), child.Name(), child.Short)
			title = ""
		}
	}
}

// printFlags prints a command's flags, first those without a section. The flags of a parent other
// than the root count as its own.
func printFlags(b *strings.Builder, cmd *cobra.Command) {
	global := cmd.Root().PersistentFlags()
	titles := []string{"Flags"}
	sections := map[string]*pflag.FlagSet{}
	add := func(f *pflag.Flag) {
		if f.Hidden || global.Lookup(f.Name) == f {
			return
		}
		title := titles[0]
		if named := f.Annotations[sectionOf]; len(named) > 0 {
			title = named[0]
		}
		if sections[title] == nil {
			sections[title] = pflag.NewFlagSet(title, pflag.ContinueOnError)
		}
		sections[title].AddFlag(f)
		if !slices.Contains(titles, title) {
			titles = append(titles, title)
		}
	}
	cmd.LocalFlags().VisitAll(add)
	cmd.InheritedFlags().VisitAll(add)
	for _, title := range titles {
		if set := sections[title]; set != nil {
			fmt.Fprintf(b, "\n%s:\n%s", title, set.FlagUsagesWrapped(helpWidth))
		}
	}
}

// printPointers prints the commands with more help.
func printPointers(b *strings.Builder, cmd *cobra.Command) {
	b.WriteString("\n")
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(b, "Run `%s COMMAND --help` for the help of a command.\n", cmd.CommandPath())
	}
	b.WriteString("Run `forkd help flags` for the flags of all commands, such as --json and --url.\n")
}
