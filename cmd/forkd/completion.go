package main

import (
	"github.com/spf13/cobra"
)

func newCompletionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print a shell script that completes commands, tags and IDs",
		Example: "  source <(forkd completion bash)\n" +
			"  forkd completion zsh > \"${fpath[1]}/_forkd\"\n" +
			"  forkd completion fish > ~/.config/fish/completions/forkd.fish",
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(cmd *cobra.Command, args []string) error {
			root, out := cmd.Root(), cmd.OutOrStdout()
			switch args[0] {
			case "zsh":
				return root.GenZshCompletion(out)
			case "fish":
				return root.GenFishCompletion(out, true)
			}
			return root.GenBashCompletionV2(out, true)
		},
	}
}
