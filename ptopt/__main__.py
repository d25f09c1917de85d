from ptopt.cli import main

main(prog_name="ptopt")
