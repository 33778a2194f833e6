package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/epochmq/epochmq/remoting/protocol"
)

func newVersionCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, and of RocketMQ the one whose protocol is spoken",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output, "text", "json"); err != nil {
				return err
			}
			v := struct {
				Version  string `json:"version"`
				Revision string `json:"revision,omitempty"`
				Protocol string `json:"protocol"`
				Go       string `json:"go"`
				Platform string `json:"platform"`
			}{shownVersion(), revision(), protocol.VersionName(protocol.Version), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			if output == "json" {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(v)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "epochmq %s (protocol of RocketMQ %s, %s, %s)\n", v.Version, v.Protocol, v.Go, v.Platform)
			return err
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

// shownVersion is what the linker was told, else what the toolchain noted: a binary of "go install" was told nothing.
func shownVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && version == "dev" && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return version
}

// revision is the commit that the binary was built from, if the toolchain noted it.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}

// checkOutput refuses an output form that a command does not have.
func checkOutput(have string, forms ...string) error {
	for _, f := range forms {
		if have == f {
			return nil
		}
	}
	return misuse("see --help", "output form %q is not one of %v", have, forms)
}
