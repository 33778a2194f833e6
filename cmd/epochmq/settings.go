package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/epochmq/epochmq/conf"
)

// configFlags are RocketMQ's flags of its server scripts.
type configFlags struct {
	file      string // -c
	all       bool   // -p
	important bool   // -m
	keys      bool
}

// load fills a set: RocketMQ's environment, then the file, then the environment in our spelling.
func (f *configFlags) load(set *conf.Set) error {
	for key, name := range map[string]string{"rocketmqHome": "ROCKETMQ_HOME", "namesrvAddr": "NAMESRV_ADDR"} {
		if v := os.Getenv(name); v != "" {
			set.Put(key, v) // a name server has no namesrvAddr
		}
	}
	if err := set.Load(f.file); err != nil {
		return advise(err, "give a readable property file with -c")
	}
	return nil
}

// listing reports whether the command only prints its settings.
func (f *configFlags) listing() bool { return f.all || f.important || f.keys }

// importantKeys are what -m prints: who a server is, where it is, and what it promises.
var importantKeys = map[string]bool{
	"rocketmqHome": true, "namesrvAddr": true, "listenPort": true, "bindAddress": true, "brokerIP1": true, "brokerIP2": true,
	"brokerName": true, "brokerClusterName": true, "brokerId": true, "brokerRole": true, "brokerPermission": true,
	"autoCreateTopicEnable": true, "autoCreateSubscriptionGroup": true, "storePathRootDir": true, "storePathCommitLog": true,
	"flushDiskType": true, "flushIntervalCommitLog": true, "mappedFileSizeCommitLog": true, "maxMessageSize": true, "deleteWhen": true,
	"fileReservedTime": true, "diskMaxUsedSpaceRatio": true, "haListenPort": true, "enableControllerMode": true, "useTLS": true,
	"kvConfigPath": true, "configStorePath": true, "supportActingMaster": true, "notifyMinBrokerIdChanged": true,
	"orderMessageEnable": true, "enableControllerInNamesrv": true, "productEnvName": true,
	"controllerType": true, "controllerDLegerGroup": true, "controllerDLegerPeers": true, "controllerDLegerSelfId": true, "controllerStorePath": true,
	"enableElectUncleanMaster": true, "notifyBrokerRoleChanged": true,
}

// print lists settings: key=value lines with -p and -m; with --keys one line for each that also says its default and effect.
func (f *configFlags) print(w io.Writer, set *conf.Set) error {
	var b strings.Builder
	for _, k := range set.Keys() {
		switch {
		case f.keys:
			when := "start"
			switch {
			case strings.HasPrefix(k.Effect, "none"):
				when = "never"
			case k.Live:
				when = "live"
			}
			fmt.Fprintf(&b, "%s=%s\tdefault=%s\tacts=%s\t%s\n", k.Name, k.Value, k.Default, when, k.Effect)
		case f.all || importantKeys[k.Name]:
			fmt.Fprintf(&b, "%s=%s\n", k.Name, k.Value)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
