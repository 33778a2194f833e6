package store

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Values of flushDiskType and brokerRole.
const (
	SyncFlush  = "SYNC_FLUSH"
	AsyncFlush = "ASYNC_FLUSH"

	RoleAsyncMaster = "ASYNC_MASTER"
	RoleSyncMaster  = "SYNC_MASTER"
	RoleSlave       = "SLAVE"
)

const (
	unitSize       = 20  // bytes of one consume queue entry
	maxDelayLevels = 128 // levels a messageDelayLevel text may list
)

// Defaults returns a Config with the default of every key.
func Defaults() Config {
	var c Config
	v := reflect.ValueOf(&c).Elem()
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if err := setField(v.Field(i), f.Tag.Get("default")); err != nil {
			panic("store: default of " + f.Name + ": " + err.Error())
		}
	}
	return c
}

func setField(v reflect.Value, text string) error {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return err
		}
		v.SetBool(b)
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return err
		}
		v.SetInt(n)
	case reflect.Float64:
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return err
		}
		v.SetFloat(n)
	default:
		return fmt.Errorf("kind %s is not a configuration value", v.Kind())
	}
	return nil
}

// Validate checks the keys that the store honours and names the first that is wrong. Features whose data this store
// does not write are refused with *UnsupportedError instead of being ignored.
func (c *Config) Validate() error {
	if err := c.unsupported(); err != nil {
		return err
	}
	if _, err := ParseDelayLevels(c.MessageDelayLevel); err != nil {
		return err
	}
	if _, err := parseHours(c.DeleteWhen); err != nil {
		return err
	}
	type limit struct {
		key      string
		v        int64
		min, max int64
	}
	for _, l := range []limit{
		{"mappedFileSizeCommitLog", c.MappedFileSizeCommitLog, 4096, 1<<31 - 1},
		{"mappedFileSizeConsumeQueue", c.MappedFileSizeConsumeQueue, unitSize, 1<<31 - unitSize},
		{"maxMessageSize", int64(c.MaxMessageSize), 1, 1<<31 - 1<<17},
		{"maxHashSlotNum", int64(c.MaxHashSlotNum), 1, 1 << 28},
		{"maxIndexNum", int64(c.MaxIndexNum), 2, 1 << 28},
		{"flushIntervalCommitLog", int64(c.FlushIntervalCommitLog), 1, 1 << 31},
		{"flushIntervalConsumeQueue", int64(c.FlushIntervalConsumeQueue), 1, 1 << 31},
		{"flushConsumeQueueThoroughInterval", int64(c.FlushConsumeQueueThoroughInterval), 1, 1 << 31},
		{"cleanResourceInterval", int64(c.CleanResourceInterval), 1, 1 << 31},
		{"osPageCacheBusyTimeOutMills", int64(c.OsPageCacheBusyTimeOutMills), 0, 1 << 31},
		{"fileReservedTime", int64(c.FileReservedTime), 0, 1 << 31},
		{"deleteFileBatchMax", int64(c.DeleteFileBatchMax), 1, 1 << 31},
		{"travelCqFileNumWhenGetMessage", int64(c.TravelCqFileNumWhenGetMessage), 1, 1 << 31},
		{"accessMessageInMemoryMaxRatio", int64(c.AccessMessageInMemoryMaxRatio), 0, 100},
	} {
		if l.v < l.min || l.v > l.max {
			return fmt.Errorf("store: %s=%d is out of range, allowed %d to %d", l.key, l.v, l.min, l.max)
		}
	}
	if c.FlushDiskType != SyncFlush && c.FlushDiskType != AsyncFlush {
		return fmt.Errorf("store: flushDiskType=%q is unknown, use %s or %s", c.FlushDiskType, AsyncFlush, SyncFlush)
	}
	switch c.BrokerRole {
	case RoleAsyncMaster, RoleSyncMaster, RoleSlave:
	default:
		return fmt.Errorf("store: brokerRole=%q is unknown, use %s, %s or %s", c.BrokerRole, RoleAsyncMaster, RoleSyncMaster, RoleSlave)
	}
	return nil
}

// unsupported refuses features that would need data of another form on disk.
func (c *Config) unsupported() error {
	switch {
	case c.StoreType != "" && c.StoreType != "default":
		return &UnsupportedError{What: "storeType=" + c.StoreType, Hint: rocksHint}
	case c.EnableDLegerCommitLog:
		return &UnsupportedError{What: "enableDLegerCommitLog=true", Hint: dledgerHint}
	case c.EnableConsumeQueueExt:
		return &UnsupportedError{What: "enableConsumeQueueExt=true", Hint: "set it to false; queues are then rebuilt from the log when consumequeue and consumequeue_ext are moved away"}
	case c.EnableLmq:
		return &UnsupportedError{What: "enableLmq=true", Hint: "set it to false; light queues are not kept by this version"}
	case c.DuplicationEnable:
		return &UnsupportedError{What: "duplicationEnable=true", Hint: "set it to false; a log that another tool copies is not served"}
	}
	return nil
}

// Root returns storePathRootDir, or $HOME/store when it is empty.
func (c *Config) Root() string {
	if c.StorePathRootDir != "" {
		return filepath.Clean(c.StorePathRootDir)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = "."
	}
	return filepath.Join(home, "store")
}

// LogPaths returns the writable and the read-only folders of the commit log. Writable ones never appear in the second.
func (c *Config) LogPaths() (writable, readOnly []string) {
	readOnly = splitPaths(c.ReadOnlyCommitLogStorePaths)
	all := splitPaths(c.StorePathCommitLog)
	// The default is one folder, whatever the name of the root holds.
	if own := filepath.Join(c.Root(), "commitlog"); len(all) == 0 || filepath.Clean(c.StorePathCommitLog) == own {
		all = []string{own}
	}
	ro := make(map[string]bool)
	for _, p := range readOnly {
		ro[p] = true
	}
	for _, p := range all {
		if !ro[p] {
			writable = append(writable, p)
		}
	}
	if len(writable) == 0 {
		writable, readOnly = all, nil
	}
	return writable, readOnly
}

func splitPaths(list string) []string {
	var out []string
	for p := range strings.SplitSeq(list, ",") {
		if p = strings.TrimSpace(p); p != "" {
			out = append(out, filepath.Clean(p))
		}
	}
	return out
}

// SyncFlush says whether an acknowledgement waits for the disk.
func (c *Config) SyncFlush() bool { return c.FlushDiskType == SyncFlush }

// queueFileSize is mappedFileSizeConsumeQueue rounded up to whole entries.
func (c *Config) queueFileSize() int64 {
	return (c.MappedFileSizeConsumeQueue + unitSize - 1) / unitSize * unitSize
}

// maxRecord is the largest record that may be appended.
func (c *Config) maxRecord() int64 { return int64(c.MaxMessageSize) + 64<<10 }

// ratios returns the three disk levels as fractions, clamped as RocketMQ does.
func (c *Config) ratios() (normal, forced, warning float64) {
	clamp := func(v, lo, hi int) float64 { return float64(min(max(v, lo), hi)) / 100 }
	return clamp(c.DiskMaxUsedSpaceRatio, 10, 95), clamp(c.DiskSpaceCleanForciblyRatio, 30, 85), clamp(c.DiskSpaceWarningLevelRatio, 35, 90)
}

// ParseDelayLevels returns the delay of each level in milliseconds; level 1 is the first. Units are s, m, h and d.
func ParseDelayLevels(text string) ([]int64, error) {
	var out []int64
	for item := range strings.FieldsSeq(text) {
		unit, ok := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}[item[len(item)-1]]
		n, err := strconv.ParseInt(item[:len(item)-1], 10, 64)
		if !ok || err != nil || n < 0 || n > 1<<31 {
			return nil, fmt.Errorf("store: messageDelayLevel has %q, want a number and one of s, m, h, d, for example 10s", item)
		}
		if len(out) == maxDelayLevels {
			return nil, fmt.Errorf("store: messageDelayLevel lists more than %d levels", maxDelayLevels)
		}
		out = append(out, n*unit.Milliseconds())
	}
	return out, nil
}

// parseHours reads deleteWhen: local hours 0 to 23 divided by semicolons. An empty text means never.
func parseHours(text string) (hours [24]bool, err error) {
	for item := range strings.SplitSeq(text, ";") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		h, err := strconv.Atoi(item)
		if err != nil || h < 0 || h > 24 {
			return hours, fmt.Errorf("store: deleteWhen has %q, want hours 00 to 23 divided by semicolons", item)
		}
		hours[h%24] = true
	}
	return hours, nil
}

// applyLive copies the live keys of next over c and returns the keys that differ but need a restart.
func (c *Config) applyLive(next *Config) (restart []string) {
	dst, src := reflect.ValueOf(c).Elem(), reflect.ValueOf(next).Elem()
	for i := range dst.NumField() {
		tag := dst.Type().Field(i).Tag
		if tag.Get("live") == "true" {
			dst.Field(i).Set(src.Field(i))
		} else if !dst.Field(i).Equal(src.Field(i)) && tag.Get("effect") == "honoured" {
			restart = append(restart, tag.Get("property"))
		}
	}
	return restart
}
