from windtunnel.cli.run_batch import main

main()
