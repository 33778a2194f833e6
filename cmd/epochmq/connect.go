package main

// defaultNameServer is asked when neither a flag nor the environment names one.
const defaultNameServer = "127.0.0.1:9876"
